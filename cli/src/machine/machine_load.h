#pragma once

#include <string>

namespace strata::cli {

/// What the CPUs of a machine did since it started, in seconds of one CPU.
struct CpuTime {
  double busy_s = 0;    ///< of all programs
  double stolen_s = 0;  ///< the hypervisor gave to other machines
  double own_s = 0;     ///< of this process
  double wall_s = 0;
  int cpus = 0;  ///< 0: the system does not say
};
/// Reads /proc below `root` (tests own one; the real one is ""). What is missing stays 0.
CpuTime read_cpu_time(const std::string& root = "");

/// What between `before` and `after` kept a measurement from having the machine to itself, in a sentence:
/// other programs that used more than a tenth of it, or a hypervisor that took more than a fiftieth. Empty
/// where nothing did, or nothing is known.
std::string busy_note(const CpuTime& before, const CpuTime& after);

}  // namespace strata::cli

#pragma once

#include <string>

namespace strata {

/// CPU time of a machine since it was started, in CPU seconds.
struct CpuTime {
  double busy_s = 0;    ///< used by all programs
  double stolen_s = 0;  ///< steal time: taken by the hypervisor for other machines
  double own_s = 0;     ///< used by this process
  double wall_s = 0;
  int cpus = 0;  ///< 0: unknown
};
/// Reads `root`/proc/stat; tests pass a directory of their own, "" is the real one. Missing values stay 0.
CpuTime read_cpu_time(const std::string& root = "");

/// One sentence that says what disturbed a measurement between `before` and `after`: other programs that used
/// more than 10 % of the CPUs, or a hypervisor that took more than 2 %. Empty if neither did, or if nothing
/// is known.
std::string busy_note(const CpuTime& before, const CpuTime& after);

}  // namespace strata

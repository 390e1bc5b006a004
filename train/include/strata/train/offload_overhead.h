#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/runtime/threads/topology.h>
#include <strata/runtime/trace/stall_meter.h>

namespace strata {

/// Seconds of the measured steps of one configuration; at least one step.
struct StepSeconds {
  std::vector<double> all;
  std::string recompute;  ///< its recompute mode
  double median() const;
};

/// The cost of offloading in a run. Its efficiency is the time of a step with everything on the device
/// divided by the time of a step as configured. 1 means no cost; more than 1 is noise, or a placement that
/// suits this machine's caches better.
struct OffloadOverhead {
  StepSeconds offloaded;  ///< as configured
  StepSeconds on_device;  ///< everything on the device; empty if not measured
  std::string
      not_measured_reason;  ///< if `on_device` is empty; the compute time of `offloaded` is then used instead
  StallTimes times;         ///< the stalls of the steps as configured

  bool measured() const noexcept { return !on_device.all.empty(); }
  double on_device_s() const;
  double efficiency() const { return on_device_s() / offloaded.median(); }
};

/// Empty if a run with `bytes` in host memory can start beside what already runs; otherwise the reason, with
/// both numbers.
std::string reason_not_fitting(std::uint64_t bytes, int threads, const HostFacts& facts);

/// A table and one sentence.
std::string offload_overhead_text(const OffloadOverhead& p);
/// The same as JSON: offload_efficiency, measured, not_measured_reason, steps, the step times of both
/// configurations, and shares of the step.
std::string offload_overhead_json(const OffloadOverhead& p);

}  // namespace strata

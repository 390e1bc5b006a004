#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/runtime/stall_meter.h>
#include <strata/runtime/topology.h>

namespace strata::cli {

/// Seconds of the counted steps of one side; at least one.
struct StepSeconds {
  std::vector<double> all;
  std::string recompute;  ///< how its backward does without kept activations
  double median() const;
};

/// What offload costs a run: the time of a step with everything on the device over that of a step as
/// configured. 1: nothing; above 1 is noise, or a placement that is better for this machine's caches.
struct OffloadOverhead {
  StepSeconds offloaded;  ///< as configured
  StepSeconds on_device;  ///< all on the device; empty where that was not measured
  std::string
      not_measured_reason;  ///< then: why. Compute alone, of the steps as configured, stands for such a step
  StallTimes times;         ///< of the steps as configured

  bool measured() const noexcept { return !on_device.all.empty(); }
  double on_device_s() const;
  double efficiency() const { return on_device_s() / offloaded.median(); }
};

/// Empty where a run that keeps `bytes` in host memory may start beside what is there; else why not, with
/// both numbers.
std::string reason_not_fitting(std::uint64_t bytes, int threads, const HostFacts& facts);

/// A table and a sentence.
std::string offload_overhead_text(const OffloadOverhead& p);
/// The same for programs: offload_efficiency, measured, not_measured_reason, steps, step_s of both sides,
/// shares of the step.
std::string offload_overhead_json(const OffloadOverhead& p);

}  // namespace strata::cli

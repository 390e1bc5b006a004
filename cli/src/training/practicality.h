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
struct Practicality {
  StepSeconds with;     ///< as configured
  StepSeconds without;  ///< all on the device; empty where that was not measured
  std::string why_not;  ///< then: why. Compute alone, of the steps as configured, stands for such a step
  StallTimes times;     ///< of the steps as configured

  bool measured() const noexcept { return !without.all.empty(); }
  double without_s() const;
  double value() const { return without_s() / with.median(); }
};

/// Empty where a run that keeps `bytes` in host memory may start beside what is there; else why not, with
/// both numbers.
std::string why_it_does_not_fit(std::uint64_t bytes, int threads, const HostFacts& facts);

/// A table and a sentence.
std::string practicality_text(const Practicality& p);
/// The same for programs: practicality, measured, why_not, steps, step_s of both sides, shares of the step.
std::string practicality_json(const Practicality& p);

}  // namespace strata::cli

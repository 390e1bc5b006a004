#pragma once

#include <strata/engine/engine.h>
#include <strata/offload/machine_profile.h>

namespace strata {

/// What a step of a run will take on a machine: the run's own scheduler over a simulation of that machine.
struct Forecast {
  double step_s = 0;        ///< of a step when the run is warm
  StallTimes times{};       ///< where it goes
  LaneBusySeconds lanes{};  ///< in which each lane works
  MovedBytes moved{};
  double speculated_share = 0;  ///< of the chunks that are trained: updated before the norm is known
  TierBytes peak{};             ///< which is the plan's
};

struct ForecastOptions {
  /// Share of the steps whose gradient is clipped, which undoes updates made speculatively: a mean over steps
  /// that are and steps that are not, of which less than a hundredth of either may be left out. Of a run that
  /// does not clip, or updates nothing speculatively, it changes nothing.
  double clipped = 0;
  Trace* trace = nullptr;  ///< gets the lanes of the last two steps
};

/// Deterministic: the same plan, profile and options give the same figures. Errors: `unsupported` for a plan
/// that does not train, and for one that uses a slow tier of which the profile knows nothing; `invalid` for a
/// share that is none.
Result<Forecast> forecast(const RunPlan& plan, const MachineProfile& profile,
                          const ForecastOptions& options = {});

}  // namespace strata

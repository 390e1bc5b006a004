#pragma once

#include <strata/engine/engine.h>
#include <strata/offload/machine_profile.h>

namespace strata {

/// What a step of a run will take on a machine: the run's own scheduler over a simulation of that machine.
struct Forecast {
  double step_s = 0;    ///< of a step when the run is warm
  StallTimes times{};   ///< where it goes
  LaneSeconds lanes{};  ///< in which each lane works
  MovedBytes moved{};
  double speculated_share = 0;  ///< of the chunks that are trained: updated before the norm is known
  TierBytes peak{};             ///< which is the plan's
};

/// Deterministic: the same plan and profile give the same figures. No step is clipped. `trace`, which may be
/// null, gets the lanes of the last two steps. Errors: `unsupported` for a plan that does not train,
/// and for one that uses a slow tier of which the profile knows nothing.
Result<Forecast> forecast(const RunPlan& plan, const MachineProfile& profile, Trace* trace = nullptr);

}  // namespace strata

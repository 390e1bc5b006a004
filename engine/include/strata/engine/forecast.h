#pragma once

#include <string>

#include <strata/engine/run_plan.h>
#include <strata/offload/machine_profile.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/trace/trace.h>
#include <strata/session/lanes.h>

namespace strata {

/// The predicted step of a run on a machine: the run's own scheduler over a simulation of that machine.
struct Forecast {
  double step_s = 0;        ///< duration of a step in steady state
  StallTimes times{};       ///< how that time is spent
  LaneBusySeconds lanes{};  ///< time in which each lane is busy, per step
  MovedBytes moved{};
  double speculated_share = 0;  ///< fraction of the trained chunks that is updated before the norm is known
  TierBytes peak{};             ///< equals the plan's peak
  double refresh_s = 0;         ///< duration of the program that refreshes between steps; 0: there is none
};

struct ForecastOptions {
  /// Fraction of the steps whose gradient is clipped, which rolls back speculative updates. The forecast is a
  /// mean over clipped and unclipped steps, in which steps of either kind that are rarer than 1 in 100 may be
  /// missing. It has no effect on a run that does not clip or that updates nothing speculatively.
  double clipped = 0;
  Trace* trace = nullptr;      ///< receives the lanes of the last two steps
  std::string track_prefix{};  ///< the beginning of the names of their tracks
};

/// Deterministic: the same plan, profile and options give the same figures. Errors: `unsupported` for a plan
/// that does not train, and for one that uses a slow tier that the profile lacks; `invalid` for a `clipped`
/// outside [0, 1].
Result<Forecast> forecast(const RunPlan& plan, const MachineProfile& profile,
                          const ForecastOptions& options = {});

}  // namespace strata

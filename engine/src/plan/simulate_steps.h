#pragma once

#include <strata/engine/engine.h>
#include <strata/engine/forecast.h>
#include <strata/runtime/backend/simulation.h>

namespace strata::detail {

/// Number of simulated steps: those until the steady state, and those that count.
struct SimulatedSteps {
  int warm = 0, counted = 0;
};
SimulatedSteps simulated_steps(const RunPlan& plan, const ForecastOptions& options);

/// Errors: those of forecast().
Status check_forecast(const RunPlan& plan, const MachineProfile& profile, const ForecastOptions& options);

/// The forecast of a rank on its machine. `of_rank`: its share of the machine's profile. `peers`: the ranks
/// that are simulated together with it; null: there are none.
Result<Forecast> simulate_steps(const RunPlan& plan, const MachineProfile& of_rank, Simulation& machine,
                                const ForecastOptions& options, const SimulatedSteps& steps,
                                const SimulatedPeers* peers = nullptr);

}  // namespace strata::detail

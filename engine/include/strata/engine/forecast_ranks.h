#pragma once

#include <span>
#include <vector>

#include <strata/engine/forecast.h>

namespace strata {

/// The forecasts of ranks that wait for each other, by their real engines in one virtual time: those of
/// `plans`, in their order. A collective of a rank with ranks of which there is no plan takes the time of its
/// bytes; with others it begins when the last of them comes to it. `traces`: receive the lanes of the last
/// two steps of each rank; empty: none is recorded. Deterministic. Errors: those of forecast(); `invalid` for
/// two plans of one rank, or of runs with different numbers of ranks; `lost_peer` if ranks wait for each
/// other for ever, or one of them never comes to a collective.
Result<std::vector<Forecast>> forecast_ranks(std::span<const RunPlan* const> plans,
                                             const MachineProfile& profile,
                                             const ForecastOptions& options = {});

}  // namespace strata

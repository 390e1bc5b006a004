#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <strata/engine/forecast.h>
#include <strata/runtime/status.h>

namespace strata {

/// Returns the forecast of the same run with other budgets (bytes per tier), or nothing if the run does not
/// fit in them.
using ForecastForBudgets = std::function<Result<std::optional<Forecast>>(const TierBytes& budgets)>;

/// Step times over budgets of the device and of pinned RAM: each from a quarter of its present value to four
/// times it, limited to what the machine has (`limits`).
struct BudgetSweep {
  std::vector<std::uint64_t> device, pinned;
  std::vector<std::vector<std::optional<double>>> step_s;  ///< [device][pinned]; nothing: does not fit
};
Result<BudgetSweep> sweep_budgets(const TierBytes& budgets, const TierBytes& limits,
                                  const ForecastForBudgets& forecast_for);
/// A table of tokens per second, with "-" where the run does not fit. `tokens`: tokens per step.
std::string sweep_text(const BudgetSweep& sweep, double tokens);
std::string sweep_json(const BudgetSweep& sweep, double tokens);

/// The smallest budgets of the device and then of pinned RAM with which a step takes at most 2 % longer than
/// now. Each is found by bisection, to 1/32 of the present budget.
Result<TierBytes> smallest_sufficient_budgets(const TierBytes& budgets, const Forecast& now,
                                              const ForecastForBudgets& forecast_for);

}  // namespace strata

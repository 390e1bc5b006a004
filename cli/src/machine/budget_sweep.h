#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <strata/engine/forecast.h>
#include <strata/runtime/status.h>

namespace strata::cli {

/// The forecast of the same run with other budgets (of each tier, in bytes); nothing where it does not fit.
using ForecastForBudgets = std::function<Result<std::optional<Forecast>>(const TierBytes& budgets)>;

/// "with memory.pinned=161061273600 (150 GiB instead of 120 GiB) a step would take 14.2 s: 1.23x as fast", of
/// a quarter more of one tier that which gains most, or as much as the machine has (`limits`); that nothing
/// gains a fiftieth, else.
Result<std::string> suggest_budget_change(const TierBytes& budgets, const TierBytes& limits,
                                          const Forecast& now, const ForecastForBudgets& forecast_for);

/// Tokens a second over budgets of the device and of pinned RAM, from a quarter of what they are to four
/// times it, and not beyond what the machine has (`limits`), as a table; "-" where the run does not fit.
struct BudgetSweep {
  std::vector<std::uint64_t> device, pinned;
  std::vector<std::vector<std::optional<double>>> step_s;  ///< by device, then pinned
};
Result<BudgetSweep> sweep_budgets(const TierBytes& budgets, const TierBytes& limits,
                                  const ForecastForBudgets& forecast_for);
std::string sweep_text(const BudgetSweep& sweep, double tokens);
std::string sweep_json(const BudgetSweep& sweep, double tokens);

/// The smallest budgets of the device and of pinned RAM, one after the other, with which a step takes at most
/// a fiftieth longer than now, to a thirty-second of what they are.
Result<TierBytes> smallest_sufficient_budgets(const TierBytes& budgets, const Forecast& now,
                                              const ForecastForBudgets& forecast_for);

}  // namespace strata::cli

#include <strata/profile/budget_sweep.h>

#include <algorithm>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "scaled_budget.h"

namespace strata {

using detail::is_limited;
using detail::kNoGain;
using detail::scaled;
using detail::scaled_within;

Result<BudgetSweep> sweep_budgets(const TierBytes& budgets, const TierBytes& limits,
                                  const ForecastForBudgets& forecast_for) {
  constexpr double kFactors[] = {0.25, 0.5, 1, 2, 4};
  BudgetSweep sweep;
  const auto list = [&](std::size_t tier, std::vector<std::uint64_t>& into) {
    if (!is_limited(budgets[tier])) return into.push_back(budgets[tier]);
    for (const double factor : kFactors) into.push_back(scaled_within(budgets[tier], factor, limits[tier]));
    into.erase(std::unique(into.begin(), into.end()), into.end());
  };
  list(0, sweep.device);
  list(1, sweep.pinned);
  for (const std::uint64_t device : sweep.device) {
    sweep.step_s.emplace_back();
    for (const std::uint64_t pinned : sweep.pinned) {
      STRATA_TRY_ASSIGN(const std::optional<Forecast> then, forecast_for({device, pinned, budgets[2]}));
      sweep.step_s.back().push_back(then ? std::optional(then->step_s) : std::nullopt);
    }
  }
  return sweep;
}

std::string sweep_text(const BudgetSweep& sweep, double tokens) {
  const auto bytes = [](std::uint64_t n) {
    return n == kUnlimited ? std::string("unlimited") : format_bytes(n);
  };
  std::string text = fmt::format("tokens/s by budget\n  {:>14}", "device\\pinned");
  for (const std::uint64_t pinned : sweep.pinned) text += fmt::format(" {:>11}", bytes(pinned));
  for (std::size_t d = 0; d < sweep.device.size(); ++d) {
    text += fmt::format("\n  {:>14}", bytes(sweep.device[d]));
    for (const std::optional<double>& step_s : sweep.step_s[d])
      text += step_s ? fmt::format(" {:>11.4g}", tokens / *step_s) : fmt::format(" {:>11}", "-");
  }
  return text + "\n";
}

std::string sweep_json(const BudgetSweep& sweep, double tokens) {
  std::string rows;
  for (std::size_t d = 0; d < sweep.device.size(); ++d)
    for (std::size_t p = 0; p < sweep.pinned.size(); ++p)
      rows += fmt::format(
          "{}{{\"device\": {}, \"pinned\": {}, \"tokens_per_s\": {}}}", rows.empty() ? "" : ",\n  ",
          sweep.device[d], sweep.pinned[p],
          sweep.step_s[d][p] ? fmt::format("{:.6g}", tokens / *sweep.step_s[d][p]) : std::string("null"));
  return "[" + rows + "]\n";
}

Result<TierBytes> smallest_sufficient_budgets(const TierBytes& budgets, const Forecast& now,
                                              const ForecastForBudgets& forecast_for) {
  constexpr int kHalvings = 5;
  TierBytes smallest = budgets;
  for (const std::size_t t : {std::size_t{0}, std::size_t{1}}) {
    if (!is_limited(budgets[t])) continue;
    double low = 0, high = 1;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      TierBytes trial = smallest;
      trial[t] = scaled(budgets[t], middle);
      STRATA_TRY_ASSIGN(const std::optional<Forecast> then, forecast_for(trial));
      (then && then->step_s <= kNoGain * now.step_s ? high : low) = middle;
    }
    if (high < 1) smallest[t] = scaled(budgets[t], high);
  }
  return smallest;
}

}  // namespace strata

#include <strata/profile/next_change.h>

#include <algorithm>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "scaled_budget.h"

namespace strata {

std::vector<RunChange> budget_changes(const TierBytes& budgets, const TierBytes& limits) {
  constexpr double kMore = 1.25;
  std::vector<RunChange> changes;
  for (std::size_t t = 0; t < kTiers; ++t) {
    if (!detail::is_limited(budgets[t])) continue;
    const std::uint64_t more = detail::scaled_within(budgets[t], kMore, limits[t]);
    if (more == budgets[t]) continue;
    changes.push_back({.setting = str("memory.", to_string(static_cast<Tier>(t)), "=", more),
                       .note = str(format_bytes(more), " instead of ", format_bytes(budgets[t]))});
  }
  return changes;
}

Result<std::string> suggest_change(std::span<const RunChange> changes, const Forecast& now,
                                   const ForecastWith& forecast_with) {
  double best = detail::kNoGain;
  std::string text, tried;
  for (const RunChange& change : changes) {
    tried += str(tried.empty() ? "" : ", ", change.setting);
    STRATA_TRY_ASSIGN(const std::optional<Forecast> then, forecast_with(change.setting));
    const double gain = then ? change.tokens * now.step_s / then->step_s : 0;
    if (gain <= best) continue;
    best = gain;
    text = fmt::format("with {}{} a step would take {:.4g} s, {:.2f}x {}\n", change.setting,
                       change.note.empty() ? std::string() : str(" (", change.note, ")"), then->step_s, best,
                       change.tokens == 1 ? "as fast" : "the tokens/s");
  }
  if (!text.empty()) return text;
  return changes.empty() ? std::string("no change was tried: no tier of the machine has more memory\n")
                         : str("none of ", tried, " would make it 2 % faster\n");
}

}  // namespace strata

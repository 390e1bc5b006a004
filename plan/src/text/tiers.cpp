#include <strata/plan/tiers.h>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {

std::string tiers_json(const TierBytes& bytes) {
  std::string text;
  for (std::size_t t = 0; t < kTiers; ++t)
    text += fmt::format("{}\"{}\": {}", t > 0 ? ", " : "", to_string(static_cast<Tier>(t)),
                        bytes[t] == kUnlimited ? std::string("null") : str(bytes[t]));
  return "{" + text + "}";
}

std::string tiers_text(const TierBytes& budgets, const TierBytes& planned, const TierBytes& measured) {
  std::string text =
      fmt::format("\n  {:<7} {:>12} {:>14} {:>14}\n", "tier", "budget", "planned peak", "measured peak");
  for (std::size_t t = 0; t < kTiers; ++t)
    text += fmt::format("  {:<7} {:>12} {:>14} {:>14}\n", to_string(static_cast<Tier>(t)),
                        budgets[t] == kUnlimited ? "unlimited" : format_bytes(budgets[t]),
                        format_bytes(planned[t]), format_bytes(measured[t]));
  return text;
}

std::string tiers_text(const Engine& engine) {
  return tiers_text(engine.plan().options.budgets, engine.plan().planned_peak, engine.peak_bytes());
}

}  // namespace strata

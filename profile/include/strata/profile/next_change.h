#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/forecast.h>
#include <strata/runtime/status.h>

namespace strata {

/// One setting of a run that may make it faster.
struct RunChange {
  std::string setting;  ///< section.key=value
  std::string note;     ///< in words what changes; may be empty
  double tokens = 1;    ///< tokens of a step, as a multiple of today's
};
/// Returns the forecast of the same run with that setting, or nothing if the run does not fit or refuses it.
using ForecastWith = std::function<Result<std::optional<Forecast>>(const std::string& setting)>;

/// A quarter more of each tier's budget, or as much as the machine has (`limits`).
std::vector<RunChange> budget_changes(const TierBytes& budgets, const TierBytes& limits);

/// Describes the change by which the run would have the most tokens per second: "with
/// memory.pinned=161061273600 (150 GiB instead of 120 GiB) a step would take 14.2 s, 1.23x as fast", or "...,
/// 1.4x the tokens/s" if the step has other tokens. If none makes it at least 2 % faster, the text says so.
Result<std::string> suggest_change(std::span<const RunChange> changes, const Forecast& now,
                                   const ForecastWith& forecast_with);

}  // namespace strata

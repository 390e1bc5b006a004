#pragma once

#include <optional>
#include <string>

#include <strata/engine/forecast.h>
#include <strata/profile/profile_cache.h>
#include <strata/train/train_outcome.h>

namespace strata {

/// The forecast for a run's steps, to compare with the measured steps. It uses this machine's profile from
/// `strata bench`, with the share of clipped steps that occurred. Without a profile there is no forecast.
struct ForecastComparison {
  std::optional<Forecast> forecast{};
  std::string warning;  ///< set if the profile was measured on another machine
};
/// `forecast` is that of the plan, for steps that are not clipped. It is returned unchanged for a run that
/// was stopped, since the user who stopped it should not wait for a new forecast.
ForecastComparison compare_forecast(const RunPlan& plan, const std::optional<Forecast>& forecast,
                                    const CachedProfile& machine, const TrainOutcome& outcome);
/// A table of the forecast and measured times of steps and lanes, and a sentence if they differ much. Empty
/// if there is no forecast or no warm step.
std::string forecast_comparison_text(const ForecastComparison& expected, const TrainOutcome& outcome);
/// {"step_s": ..., "measured_step_s": ..., "error": ..., "lanes": {...}}, or null.
std::string forecast_comparison_json(const ForecastComparison& expected, const TrainOutcome& outcome);

}  // namespace strata

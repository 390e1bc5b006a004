#pragma once

#include <optional>
#include <string>

#include <strata/engine/forecast.h>

#include "machine/profile_cache.h"
#include "training/trainer.h"

namespace strata::cli {

/// What was expected of a run's steps, for a look back: the forecast for what strata bench has measured of
/// this machine, with as many steps clipped as there were. Nothing where nothing was measured.
struct ForecastComparison {
  std::optional<Forecast> forecast{};
  std::string warning;  ///< where the profile is of another machine
};
/// `forecast` is the one that the plan was made with, of steps that are not clipped. It stands for a run that
/// was stopped: whoever asked for that waits for nothing.
ForecastComparison compare_forecast(const RunPlan& plan, const std::optional<Forecast>& forecast,
                                    const CachedProfile& machine, const TrainOutcome& outcome);
/// Steps and lanes as they were expected and as they were, as a table and a sentence; empty where nothing was
/// expected or no step was warm.
std::string forecast_comparison_text(const ForecastComparison& expected, const TrainOutcome& outcome);
/// {"step_s": ..., "measured_step_s": ..., "error": ..., "lanes": {...}}, or null.
std::string forecast_comparison_json(const ForecastComparison& expected, const TrainOutcome& outcome);

}  // namespace strata::cli

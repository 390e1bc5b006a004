#pragma once

#include <string>

#include <strata/train/forecast_comparison.h>
#include <strata/train/train_outcome.h>

namespace strata {

/// The contents of summary.json.
std::string summary_json(const TrainOutcome& outcome, Engine& engine, std::uint64_t write_budget_bytes,
                         const ForecastComparison& expected);
/// The summary as text for the user.
std::string summary_text(const TrainOutcome& outcome, Engine& engine, const RunFolder& folder,
                         const ForecastComparison& expected);

}  // namespace strata

#pragma once

#include <string>

#include <strata/train/forecast_comparison.h>
#include <strata/train/trainer.h>

namespace strata {

/// Peak resident memory of this process as the kernel reports it (VmHWM). 0 if it cannot be read.
std::uint64_t peak_resident_bytes();

/// The contents of summary.json.
std::string summary_json(const TrainOutcome& outcome, Engine& engine, const TrainingData& training_data,
                         std::uint64_t write_budget_bytes, const ForecastComparison& expected);
/// The summary as text for the user.
std::string summary_text(const TrainOutcome& outcome, Engine& engine, const RunFolder& folder,
                         const ForecastComparison& expected);

}  // namespace strata

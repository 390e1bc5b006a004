#pragma once

#include <string>

#include "training/forecast_comparison.h"
#include "training/trainer.h"

namespace strata::cli {

/// Resident memory of this process: the most it ever was, from the kernel. 0 where it cannot be read.
std::uint64_t peak_resident_bytes();

/// summary.json, and the same for a person.
std::string summary_json(const TrainOutcome& outcome, Engine& engine, const TrainingData& training_data,
                         std::uint64_t write_budget_bytes, const ForecastComparison& expected);
std::string summary_text(const TrainOutcome& outcome, Engine& engine, const RunFolder& folder,
                         const ForecastComparison& expected);

}  // namespace strata::cli

#pragma once

#include <string>
#include <vector>

#include <strata/train/train_config.h>

namespace strata {

/// Notes about a run that may surprise the user, formatted as lines of the start table: training settings in
/// the model's folder that strata does not implement, and a warm-up longer than the run.
std::vector<std::string> start_notes(const TrainConfig& config);

}  // namespace strata

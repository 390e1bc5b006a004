#pragma once

#include <string>
#include <vector>

#include "train_config.h"

namespace strata::cli {

/// What of a run is not as whoever asked for it may think, a line each as in the table of its start: what the
/// model's folder asks for in training and strata does not do, a warm-up that does not end.
std::vector<std::string> start_notes(const TrainConfig& config);

}  // namespace strata::cli

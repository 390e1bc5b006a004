#pragma once

#include <string>
#include <vector>

namespace strata {

struct TrainConfig;

/// Whether the model has a head of its own though its config.json ties it: the files decided (HfFolder).
bool unties_head(const TrainConfig& config, const std::string& config_json);

/// Notes about a run that may surprise the user, formatted as lines of the start table: training settings in
/// the model's folder that strata does not implement, what it leaves alone of that folder, a head that is not
/// tied, and a warm-up longer than the run.
std::vector<std::string> start_notes(const TrainConfig& config);

}  // namespace strata

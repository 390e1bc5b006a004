#pragma once

#include <functional>
#include <string>

#include <strata/runtime/config/config.h>
#include <strata/config/train_config.h>

namespace strata::detail {

/// Reads the configuration of a run from its file.
using LoadRun = std::function<Result<TrainConfig>(const std::string& file)>;
/// Finds what the reward model of align.reward is, if there is one, and makes its path absolute. Errors:
/// those of reading it; `invalid` if it is none, has another vocabulary or an adapter over another base.
Status find_reward_model(ConfigTree& tree, TrainConfig& config, const LoadRun& load);

}  // namespace strata::detail

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <strata/model/adapter/adapter_settings.h>
#include <strata/model/decoder_config.h>

namespace strata {

/// A reward model as another run uses it: a Hugging Face folder for sequence classification, or a run of
/// train.objective=reward.
struct RewardModel {
  std::string path;
  bool is_run = false;
  std::string checkpoints = {};  ///< if it is a run, the folder of its checkpoints
  DecoderConfig decoder;
  /// The adapter, if the run has one: it is over the base of the other run, with which it shares that.
  std::optional<AdapterSettings> adapter;
};

/// Before the names of a reward model's parameters, but for those that it shares.
inline constexpr std::string_view kRewardPrefix = "reward.";

}  // namespace strata

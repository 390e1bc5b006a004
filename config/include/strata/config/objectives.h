#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

// The objectives of a run (train.objective): one row says what distinguishes a run of it from others.

namespace strata {

struct TrainConfig;

using KeyValues = std::span<const std::pair<std::string_view, std::string_view>>;  ///< key, text

/// What the data of a run are.
enum class RunData : std::uint8_t {
  texts,    ///< each token is predicted
  pairs,    ///< two answers to a prompt, of which one was preferred
  prompts,  ///< the run samples the answers itself
};

struct Objective {
  std::string_view name;
  RunData data = RunData::texts;
  bool scores = false;         ///< the model gives each text a score, and no tokens: a reward model
  bool has_reference = false;  ///< pairs are compared under the model that the run starts from, too
  bool has_critic = false;     ///< a critic is trained beside the policy
  std::span<const std::string_view> losses = {};  ///< the choices of align.loss, the one of `auto` first
  std::string_view doc = {};                      ///< what --task NAME is for; empty: there is no such task
  KeyValues values = {};                          ///< what --task NAME sets besides train.objective
};
/// All of them, the default first.
std::span<const Objective> all_objectives() noexcept;
/// `name` is one of the choices of train.objective.
const Objective& objective_named(std::string_view name) noexcept;
const Objective& objective_of(const TrainConfig& config) noexcept;

}  // namespace strata

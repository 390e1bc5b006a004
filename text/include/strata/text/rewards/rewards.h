#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>
#include <strata/text/rewards/reward_function.h>

// Rewards of answers: align.reward.

namespace strata {

/// A reward as it is written: [WEIGHT*]KIND[:ARGUMENT].
struct RewardSpec {
  double weight = 1;
  std::string kind, argument;
  std::string text;  ///< as written
};
/// The kinds, each with one line of help.
struct RewardKind {
  std::string_view name, argument, help;
};
std::span<const RewardKind> reward_kinds() noexcept;
/// Errors: `invalid` for another form or kind, an argument that is missing, superfluous or malformed.
Result<RewardSpec> parse_reward(const std::string& text);
/// The kind of rewards that a model gives, which run as programs of the run.
inline constexpr std::string_view kModelReward = "model";

/// The function of a spec that is not of a model; of `command`, its process. Errors: those of parse_reward();
/// `io_error` if the process cannot be started.
Result<std::unique_ptr<RewardFunction>> create_reward(const RewardSpec& spec);

}  // namespace strata

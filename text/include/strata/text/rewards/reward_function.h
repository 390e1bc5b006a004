#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// An answer as text, and the prompt that it is to.
struct AnswerText {
  std::string_view prompt;
  std::string_view record;  ///< the JSON line of the prompt's file; empty if it is no .jsonl file
  std::string answer;
  bool ended = false;  ///< whether the model ended the answer; false if it was cut off
};

/// Gives each answer a number. Not thread-safe.
class RewardFunction {
 public:
  using Stops = std::function<bool()>;  ///< whether the run has been asked to stop
  virtual ~RewardFunction() = default;
  /// Whether answers to these prompts can be rewarded; their texts are empty.
  virtual Status check(std::span<const AnswerText> /*prompts*/) const { return {}; }
  /// Adds `weight` times its value to each reward. Errors: `cancelled` if `stops` while it waits.
  virtual Status add(std::span<const AnswerText> answers, double weight, std::span<double> rewards,
                     const Stops& stops) = 0;
};

}  // namespace strata

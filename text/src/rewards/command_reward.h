#pragma once

#include <memory>
#include <string>

#include <strata/text/rewards/reward_function.h>

#include <strata/runtime/shell_command.h>

namespace strata::detail {

/// A command that runs as long as the run does. For each answer it gets a line of JSON with "prompt",
/// "answer", "ended" and "record" (that of the prompt's file, or null), and writes a line with a number, in
/// the order of the answers.
class CommandReward final : public RewardFunction {
 public:
  static Result<std::unique_ptr<CommandReward>> start(const std::string& command);
  /// Errors: `io_error` if it ends, or is silent for ten minutes; `invalid` for a line that is no number;
  /// `cancelled`, and the command is ended.
  Status add(std::span<const AnswerText> answers, double weight, std::span<double> rewards,
             const Stops& stops) override;

 private:
  explicit CommandReward(std::unique_ptr<ShellCommand> command) : command_(std::move(command)) {}
  Status exchange(std::string_view& to_send, const Stops& stops);
  Status receive();
  Status take_lines(double weight, std::size_t& taken, std::span<double> rewards);

  const std::unique_ptr<ShellCommand> command_;
  std::string received_;  // not taken yet
};

}  // namespace strata::detail

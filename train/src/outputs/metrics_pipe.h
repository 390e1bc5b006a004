#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>

#include <strata/runtime/shell_command.h>

namespace strata::detail {

/// A command of the shell that reads lines from its standard input. It never holds up the run: lines that it
/// does not read in time are dropped and counted. Its output goes where that of the run goes.
class MetricsPipe {
 public:
  /// Errors: `io_error` if no process can be started.
  static Result<std::unique_ptr<MetricsPipe>> start(const std::string& command);

  /// Sends a line with its newline. Errors: `io_error` once the command has ended.
  Status send(std::string_view line);
  /// Closes the input and waits up to 10 s. Errors: `io_error` if the command failed, or does not end.
  Status finish() { return command_->finish(); }
  std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  explicit MetricsPipe(std::unique_ptr<ShellCommand> command) : command_(std::move(command)) {}

  const std::unique_ptr<ShellCommand> command_;
  std::string rest_;  // the rest of a line that was sent in part
  std::uint64_t dropped_ = 0;
};

}  // namespace strata::detail

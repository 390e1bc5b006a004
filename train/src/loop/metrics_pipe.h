#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <sys/types.h>

#include <strata/runtime/status.h>

namespace strata::detail {

/// A command of the shell that reads lines from its standard input. It never holds up the run: lines that it
/// does not read in time are dropped and counted. Its output goes where that of the run goes.
class MetricsPipe {
 public:
  /// Errors: `io_error` if no process can be started.
  static Result<std::unique_ptr<MetricsPipe>> start(const std::string& command);
  /// Closes the input and waits a little for the command to end.
  ~MetricsPipe();
  MetricsPipe(const MetricsPipe&) = delete;
  MetricsPipe& operator=(const MetricsPipe&) = delete;

  /// Sends a line with its newline. Errors: `io_error` once the command has ended.
  Status send(std::string_view line);
  /// Closes the input and waits up to 10 s. Errors: `io_error` if the command failed, or does not end.
  Status finish();
  std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  MetricsPipe(std::string command, int socket, ::pid_t process)
      : command_(std::move(command)), socket_(socket), process_(process) {}
  void close_input() noexcept;

  const std::string command_;
  int socket_;
  ::pid_t process_;
  std::string rest_;  // of a line that was sent in part
  std::uint64_t dropped_ = 0;
};

}  // namespace strata::detail

#include "outputs/metrics_pipe.h"

#include <cerrno>

#include <sys/socket.h>

#include <strata/runtime/shell_command.h>

namespace strata::detail {

Result<std::unique_ptr<MetricsPipe>> MetricsPipe::start(const std::string& command) {
  constexpr int kBuffered = 1 << 20;  // bytes that wait for a slow command
  STRATA_TRY_ASSIGN(auto shell, ShellCommand::start("log.command", command, ShellCommand::Answers::no));
  (void)::setsockopt(shell->socket(), SOL_SOCKET, SO_SNDBUF, &kBuffered, sizeof kBuffered);
  return std::unique_ptr<MetricsPipe>(new MetricsPipe(std::move(shell)));
}

Status MetricsPipe::send(std::string_view line) {
  const int socket = command_->socket();
  if (socket < 0) return command_->failed("writing", EPIPE);
  // A line is sent whole or not at all.
  if (!rest_.empty()) {
    const ::ssize_t n = ::send(socket, rest_.data(), rest_.size(), MSG_NOSIGNAL);
    if (n > 0) rest_.erase(0, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return command_->failed("writing", errno);
  }
  if (!rest_.empty()) {
    ++dropped_;
    return {};
  }
  const ::ssize_t n = ::send(socket, line.data(), line.size(), MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return command_->failed("writing", errno);
  if (n <= 0)
    ++dropped_;
  else
    rest_ = line.substr(static_cast<std::size_t>(n));
  return {};
}

}  // namespace strata::detail

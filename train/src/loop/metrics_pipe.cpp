#include "loop/metrics_pipe.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr int kBuffered = 1 << 20;  // bytes that wait for a slow command

Status failed(const std::string& command, const char* doing, int error) {
  return Status::error(Code::io_error,
                       str("log.command = ", command, ": ", doing, ": ", std::strerror(error)));
}

}  // namespace

// A socket instead of a pipe: writing to one whose reader has ended raises no signal.
Result<std::unique_ptr<MetricsPipe>> MetricsPipe::start(const std::string& command) {
  int ends[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return failed(command, "socketpair", errno);
  (void)::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kBuffered, sizeof kBuffered);
  (void)::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  (void)::shutdown(ends[1], SHUT_WR);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  std::string shell = "sh", option = "-c", text = command;
  char* arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  ::pid_t process = 0;
  const int error = ::posix_spawn(&process, "/bin/sh", &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return failed(command, "it cannot be started", error);
  }
  return std::unique_ptr<MetricsPipe>(new MetricsPipe(command, ends[0], process));
}

MetricsPipe::~MetricsPipe() { (void)finish(); }

void MetricsPipe::close_input() noexcept {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

Status MetricsPipe::send(std::string_view line) {
  if (socket_ < 0) return failed(command_, "writing", EPIPE);
  // A line is sent whole or not at all.
  if (!rest_.empty()) {
    const ::ssize_t n = ::send(socket_, rest_.data(), rest_.size(), MSG_NOSIGNAL);
    if (n > 0) rest_.erase(0, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return failed(command_, "writing", errno);
  }
  if (!rest_.empty()) {
    ++dropped_;
    return {};
  }
  const ::ssize_t n = ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return failed(command_, "writing", errno);
  if (n <= 0)
    ++dropped_;
  else
    rest_ = line.substr(static_cast<std::size_t>(n));
  return {};
}

Status MetricsPipe::finish() {
  close_input();
  if (process_ <= 0) return {};
  const auto last = std::chrono::steady_clock::now() + kPatience;
  int state = 0;
  while (::waitpid(process_, &state, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > last)
      return Status::error(Code::io_error,
                           str("log.command = ", command_, " still runs 10 s after the end of its input"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process_ = 0;
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {};
  return Status::error(Code::io_error, str("log.command = ", command_, " ended with ",
                                           WIFEXITED(state) ? str("exit code ", WEXITSTATUS(state))
                                                            : str("signal ", WTERMSIG(state))));
}

}  // namespace strata::detail

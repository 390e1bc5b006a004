#include <strata/runtime/shell_command.h>

#include <cerrno>
#include <csignal>
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

Result<std::unique_ptr<ShellCommand>> ShellCommand::start(std::string key, const std::string& command,
                                                          Answers answers) {
  std::unique_ptr<ShellCommand> started(new ShellCommand(std::move(key), command));
  STRATA_TRY(started->spawn(answers));
  return started;
}

// A socket instead of a pipe: writing to one whose reader has ended raises no signal.
Status ShellCommand::spawn(Answers answers) {
  int ends[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return failed("socketpair", errno);
  (void)::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  if (answers == Answers::no) (void)::shutdown(ends[1], SHUT_WR);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  if (answers == Answers::yes) ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string shell = "sh", option = "-c", text = command_;
  char* arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // Processes that the shell starts can then be ended with it.
  if (answers == Answers::yes) (void)::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, arguments, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  socket_ = ends[0];
  if (error == 0) return {};
  process_ = 0;
  return failed("it cannot be started", error);
}

ShellCommand::~ShellCommand() { (void)finish(); }

void ShellCommand::close_input() noexcept {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

Status ShellCommand::failed(const std::string& what, Code code) const {
  return Status::error(code, str(key_, " = ", command_, ": ", what));
}
Status ShellCommand::failed(const char* doing, int error) const {
  return failed(str(doing, ": ", std::strerror(error)));
}

void ShellCommand::kill() noexcept {
  close_input();
  if (process_ <= 0) return;
  (void)::kill(-process_, SIGKILL);
  (void)::waitpid(process_, nullptr, 0);
  process_ = 0;
}

Status ShellCommand::finish() {
  constexpr std::chrono::seconds kPatience{10};
  close_input();
  if (process_ <= 0) return {};
  const auto last = std::chrono::steady_clock::now() + kPatience;
  int state = 0;
  while (::waitpid(process_, &state, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > last)
      return Status::error(Code::io_error,
                           str(key_, " = ", command_, " still runs 10 s after the end of its input"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process_ = 0;
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {};
  return Status::error(Code::io_error, str(key_, " = ", command_, " ended with ",
                                           WIFEXITED(state) ? str("exit code ", WEXITSTATUS(state))
                                                            : str("signal ", WTERMSIG(state))));
}

}  // namespace strata::detail

#pragma once

#include <memory>
#include <string>

#include <sys/types.h>

#include <strata/runtime/status.h>

namespace strata::detail {

/// A running command of the shell, connected by a socket, which does not block.
class ShellCommand {
 public:
  enum class Answers : bool {
    no,   ///< its output goes where that of the run goes
    yes,  ///< its output comes back through the socket; it is a process group of its own
  };
  /// `key`: the setting that names it, for errors. Errors: `io_error` if no process can be started.
  static Result<std::unique_ptr<ShellCommand>> start(std::string key, const std::string& command,
                                                     Answers answers);
  /// Closes its input and waits a little for it to end.
  ~ShellCommand();
  ShellCommand(const ShellCommand&) = delete;
  ShellCommand& operator=(const ShellCommand&) = delete;

  int socket() const noexcept { return socket_; }  ///< -1 after finish()
  /// Ends a command that answers, with all processes that it has started; nothing of it is waited for.
  void kill() noexcept;
  /// Closes its input and waits up to 10 s. Errors: `io_error` if it failed, or does not end.
  Status finish();
  /// "KEY = COMMAND: WHAT"
  Status failed(const std::string& what, Code code = Code::io_error) const;
  Status failed(const char* doing, int error) const;

 private:
  ShellCommand(std::string key, std::string command) : key_(std::move(key)), command_(std::move(command)) {}
  Status spawn(Answers answers);
  void close_input() noexcept;

  const std::string key_, command_;
  int socket_ = -1;
  ::pid_t process_ = 0;
};

}  // namespace strata::detail

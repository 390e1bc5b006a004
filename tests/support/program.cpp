#include "support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <strata/runtime/assert.h>

namespace strata::test {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the read end and the write end.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  STRATA_ASSERT(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
  return ends;
}

std::array<int, 2> make_terminal() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  STRATA_ASSERT(master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0, "opening a terminal");
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
  STRATA_ASSERT(slave >= 0, "opening the terminal's other side");
  const winsize size{24, 100, 0, 0};
  STRATA_ASSERT(::ioctl(slave, TIOCSWINSZ, &size) == 0, "setting the terminal's size");
  return {master, slave};
}

std::array<int, 2> make_out(ProgramOptions::Out out) {
  switch (out) {
    case ProgramOptions::Out::terminal:
      return make_terminal();
    case ProgramOptions::Out::full:
      return {-1, ::open("/dev/full", O_WRONLY | O_CLOEXEC)};
    case ProgramOptions::Out::closed:
      return {-1, -1};
    case ProgramOptions::Out::broken_pipe: {
      const std::array<int, 2> ends = make_pipe();
      ::close(ends[0]);
      return {-1, ends[1]};
    }
    case ProgramOptions::Out::pipe:
      break;
  }
  return make_pipe();
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

void close_if_open(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

// Returns false at the end of the output.
bool read_some(int fd, std::string& into) {
  std::array<char, 4096> part{};
  const ssize_t n = ::read(fd, part.data(), part.size());
  if (n > 0) into.append(part.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

RunningProgram::RunningProgram(const std::string& path, std::vector<std::string> arguments,
                               const ProgramOptions& options)
    : arguments_(std::move(arguments)), limit_(Clock::now() + options.limit) {
  arguments_.insert(arguments_.begin(), path);
  std::vector<std::string> environment = options.environment;
  for (const char* name : {"PATH", "HOME", "TMPDIR"})
    if (const char* value = ::getenv(name)) environment.push_back(std::string(name) + "=" + value);
  const std::vector<char*> argv = pointers(arguments_), envp = pointers(environment);
  std::array<int, 2> out = make_out(options.out), err = make_pipe();
  child_ = ::fork();
  STRATA_ASSERT(child_ >= 0, "fork");
  if (child_ == 0) {
    ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    if (out[1] >= 0)
      ::dup2(out[1], STDOUT_FILENO);
    else
      ::close(STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::signal(SIGPIPE, SIG_DFL);
    if (::chdir(options.cwd.c_str()) != 0 || (options.before_exec && !options.before_exec()))
      ::_exit(kRefused);
    ::execve(path.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }
  close_if_open(out[1]);
  close_if_open(err[1]);
  out_ = out[0];
  err_ = err[0];
}

RunningProgram::~RunningProgram() {
  if (child_ >= 0) {
    send(SIGKILL);
    finish();
  }
}

void RunningProgram::read_until(Clock::time_point until, const std::string* text) {
  while (out_ >= 0 || err_ >= 0) {
    if (text != nullptr && result_.out.find(*text) != std::string::npos) return;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(std::min(until, limit_) - Clock::now()).count();
    if (left <= 0) return;
    std::array<pollfd, 2> ready{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};  // poll ignores negative descriptors
    if (::poll(ready.data(), ready.size(), static_cast<int>(left)) <= 0) continue;
    if (ready[0].revents != 0 && !read_some(out_, result_.out)) close_if_open(out_);
    if (ready[1].revents != 0 && !read_some(err_, result_.err)) close_if_open(err_);
  }
}

bool RunningProgram::wait_for(const std::string& text) {
  read_until(Clock::time_point::max(), &text);
  return result_.out.find(text) != std::string::npos;
}

void RunningProgram::wait_for(std::chrono::microseconds time) { read_until(Clock::now() + time, nullptr); }

void RunningProgram::send(int signal) const { ::kill(child_, signal); }

ProgramResult RunningProgram::finish() {
  read_until(Clock::time_point::max(), nullptr);
  if (out_ >= 0 || err_ >= 0) {
    result_.timed_out = true;
    send(SIGKILL);
  }
  close_if_open(out_);
  close_if_open(err_);
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return result_;
}

}  // namespace strata::test

#include "support/child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <utility>

#include <strata/runtime/assert.h>

namespace strata::test {
namespace {

struct Pipe {
  std::array<int, 2> ends{};
  Pipe() { STRATA_ASSERT(::pipe(ends.data()) == 0, "pipe"); }
};

void write_text(int fd, const std::string& text) {
  static_cast<void>(!::write(fd, text.data(), text.size()));
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 512> part{};
  for (ssize_t n = 0; (n = ::read(fd, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  ::close(fd);
  return text;
}

}  // namespace

std::vector<ChildResult> run_in_children(std::span<const std::function<std::string()>> bodies) {
  struct Child {
    pid_t pid = -1;
    int output = -1;
  };
  std::vector<Child> children;
  for (const auto& body : bodies) {
    const Pipe pipe;
    const pid_t child = ::fork();
    STRATA_ASSERT(child >= 0, "fork");
    if (child == 0) {
      int code = 0;
      try {
        write_text(pipe.ends[1], body());
      } catch (const std::exception& error) {
        write_text(pipe.ends[1], error.what());
        code = 1;
      }
      ::_exit(code);
    }
    ::close(pipe.ends[1]);
    children.push_back({child, pipe.ends[0]});
  }
  std::vector<ChildResult> results;
  for (const Child& child : children) {
    ChildResult result;
    result.output = read_all(child.output);
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    results.push_back(std::move(result));
  }
  return results;
}

ChildResult run_in_child(const std::function<std::string()>& body) {
  return std::move(run_in_children(std::span(&body, 1)).front());
}

void kill_after(const std::function<void()>& body) {
  const Pipe pipe;
  const pid_t child = ::fork();
  STRATA_ASSERT(child >= 0, "fork");
  if (child == 0) {
    body();
    write_text(pipe.ends[1], "ready");
    for (;;) ::pause();
  }
  ::close(pipe.ends[1]);
  std::array<char, 5> ready{};
  static_cast<void>(!::read(pipe.ends[0], ready.data(), ready.size()));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe.ends[0]);
}

}  // namespace strata::test

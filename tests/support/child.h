#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace strata::test {

/// The output of a child process and how it ended.
struct ChildResult {
  int exit_code = -1;  ///< -1: ended by a signal
  std::string output;
};

/// Runs `body` in a forked child, for tests that would change the whole process (limits, filters, mounts,
/// user). `body` returns the output; the child exits with 0, or with 1 and the message if `body` throws. Call
/// it before the test starts threads.
ChildResult run_in_child(const std::function<std::string()>& body);

/// Runs each body in a child of its own, all at the same time. Only the calling thread is forked.
std::vector<ChildResult> run_in_children(std::span<const std::function<std::string()>> bodies);

/// Runs `body` in a forked child and kills it (SIGKILL) as soon as `body` has returned, with everything it
/// opened still open.
void kill_after(const std::function<void()>& body);

}  // namespace strata::test

#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace strata::test {

/// What a child process said and how it ended.
struct ChildResult {
  int exit_code = -1;  ///< -1: a signal
  std::string output;
};

/// Runs `body` in a forked child, for what would change the whole process (limits, filters, mounts, user). It
/// returns the text to say; the child exits with 0, or with 1 and the message where `body` throws. Call it
/// before the test starts threads.
ChildResult run_in_child(const std::function<std::string()>& body);

/// The same with a child for each, all of them running at once. Forks from the caller's thread alone.
std::vector<ChildResult> run_in_children(std::span<const std::function<std::string()>> bodies);

/// Runs `body` in a forked child and kills it (SIGKILL) as soon as `body` has returned, with all it made
/// still open.
void kill_after(const std::function<void()>& body);

}  // namespace strata::test

#pragma once

#include <functional>
#include <memory>

#include <strata/runtime/status.h>

namespace strata {

namespace detail {
class SimScheduler;
}  // namespace detail

/// Work of several ranks that begins at one time: as soon as it is first in the lanes of all of them.
struct SimMeeting {
  int expected = 1;  ///< ranks
  int arrived = 0;
  bool is_complete() const noexcept { return arrived >= expected; }
};

/// One virtual clock for the simulated machines of several ranks. The ranks take turns on the thread that
/// runs them: when one waits, for a time or for work of its machine, the lowest rank goes on for which what
/// it waits for has come; if there is none, time passes until there is. The simulation is therefore
/// deterministic.
class SimWorld {
 public:
  explicit SimWorld(int ranks);
  ~SimWorld();

  /// Runs `body`, which must not throw, once for each rank, each on a stack of its own; returns when all have
  /// ended. A body uses the machine of its rank, and must not wait for another rank otherwise.
  void run(const std::function<void(int rank)>& body);

  /// `lost_peer` once the ranks wait for each other for ever; no wait takes time any more then.
  Status status() const;
  detail::SimScheduler& scheduler() noexcept { return *scheduler_; }

 private:
  std::unique_ptr<detail::SimScheduler> scheduler_;
};

}  // namespace strata

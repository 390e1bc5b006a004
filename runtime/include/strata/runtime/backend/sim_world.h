#pragma once

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

/// One virtual clock for the simulated machines of several ranks, each of which is used by a thread of its
/// own. One of the threads runs at a time: when it waits, for a time or for work of its machine, the lowest
/// rank goes on for which what it waits for has come; if there is none, time passes until there is. The
/// simulation is therefore deterministic.
class SimWorld {
 public:
  explicit SimWorld(int ranks);
  ~SimWorld();

  /// The thread of a rank has one while it uses the machine of the rank. The constructor waits until all
  /// ranks have come and it is this rank's turn; the destructor lets the others go on for good.
  class Turn {
   public:
    Turn(SimWorld& world, int rank);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SimWorld& world_;
    const int rank_;
  };

  /// `lost_peer` once the ranks wait for each other for ever; no wait takes time any more then.
  Status status() const;
  detail::SimScheduler& scheduler() noexcept { return *scheduler_; }

 private:
  std::unique_ptr<detail::SimScheduler> scheduler_;
};

}  // namespace strata

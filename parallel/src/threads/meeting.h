#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/parallel/collective.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

#include "threads/thread_watch.h"

namespace strata::detail {

/// The contribution of a rank to a meeting: its call, the point in its stream up to which others wait, and
/// whether it has failed.
struct Contribution {
  int rank = 0;  ///< in its group; a meeting of two ranks numbers them otherwise
  Collective call = {};
  Event event = {};
  Status status = {};
  std::span<const int> members = {};  ///< set by split()
  std::string_view doing = {};        ///< set by a world: the name of the call
  std::string_view text = {};         ///< set by a world
  std::shared_ptr<void> shared = {};  ///< an object that the first rank has created for all
};

/// The threads that meet, as ranks of the world that watches them.
struct WatchedRanks {
  std::shared_ptr<ThreadWatch> watch = {};  ///< null: nobody watches
  std::vector<int> world_ranks = {};
  /// The watched ranks that are `members`.
  WatchedRanks part(std::span<const int> members) const;
};

/// A barrier of threads that exchanges a value of each (an all-gather). Thread-safe; each rank calls meet()
/// from one thread at a time. Nothing is allocated after construction.
class Meeting {
 public:
  explicit Meeting(int size, WatchedRanks ranks = {});

  /// Waits until every rank has come, and returns the contributions by rank. They stay valid until this rank
  /// comes to the next but one meeting. Errors: `lost_peer` if a rank has left, or is lost, that had not
  /// come.
  Result<std::span<const Contribution>> meet(int rank, const Contribution& mine);
  /// The rank will not come again.
  void leave(int rank);

 private:
  void wait() STRATA_REQUIRES(mutex_);
  /// `since_ns`: when the caller began to wait. Releases the mutex while it warns.
  void look_for_lost(std::int64_t since_ns) STRATA_REQUIRES(mutex_);

  const int size_;
  const WatchedRanks ranks_;
  Mutex mutex_;
  Condition changed_;
  // Two sets in turn: a rank may come to the next meeting while others still read the last one.
  std::array<std::vector<Contribution>, 2>
      contributions_;  // each rank writes its own; others read after the meeting
  std::uint64_t meeting_ STRATA_GUARDED_BY(mutex_) = 0;
  int arrived_ STRATA_GUARDED_BY(mutex_) = 0;
  std::vector<bool> came_ STRATA_GUARDED_BY(mutex_);  // indexed by rank
  int left_ STRATA_GUARDED_BY(mutex_) = -1;           // a rank that has left, or is lost
  std::string why_ STRATA_GUARDED_BY(mutex_);
  std::vector<int> missing_ STRATA_GUARDED_BY(mutex_);  // memory of look_for_lost()
};

}  // namespace strata::detail

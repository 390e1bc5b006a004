#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <strata/parallel/collective.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::detail {

/// What a rank contributes to a meeting: its call, the point in its stream up to which others wait, and
/// whether it has failed.
struct Contribution {
  int rank = 0;  ///< in its group; a meeting of two ranks numbers them otherwise
  Collective call = {};
  Event event = {};
  Status status = {};
  std::span<const int> members = {};  ///< of split()
  std::string_view doing = {};        ///< of a world: the name of the call
  std::string_view text = {};         ///< of a world
  std::shared_ptr<void> shared = {};  ///< what the first rank has created for all
};

/// A barrier of threads that exchanges a value of each (an all-gather). Thread-safe; each rank calls meet()
/// from one thread at a time. Nothing is allocated after construction.
class Meeting {
 public:
  explicit Meeting(int size);

  /// Waits until every rank has come, and returns the contributions by rank. They stay valid until this rank
  /// comes to the next but one meeting. Errors: `lost_peer` if a rank has left that had not come.
  Result<std::span<const Contribution>> meet(int rank, const Contribution& mine);
  /// The rank will not come again.
  void leave(int rank);

 private:
  const int size_;
  Mutex mutex_;
  Condition changed_;
  // Two sets in turn: a rank may come to the next meeting while others still read the last one.
  std::array<std::vector<Contribution>, 2>
      contributions_;  // each rank writes its own; others read after the meeting
  std::uint64_t meeting_ STRATA_GUARDED_BY(mutex_) = 0;
  int arrived_ STRATA_GUARDED_BY(mutex_) = 0;
  int left_ STRATA_GUARDED_BY(mutex_) = -1;  // a rank that has left
};

}  // namespace strata::detail

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/parallel/rank_progress.h>
#include <strata/parallel/watch_options.h>
#include <strata/runtime/thread_annotations.h>

#include "watch/peer_watch.h"

namespace strata::detail {

/// Watches the ranks of a world of threads for those that wait for them. Threads are neither killed nor
/// stopped alone, but may not come back from code of the caller. Thread-safe.
class ThreadWatch {
 public:
  explicit ThreadWatch(int n_ranks);
  RankProgress& progress(int rank) { return progress_[static_cast<std::size_t>(rank)]; }
  void set(const WatchOptions& options);

  /// The rank cannot go on; what others read of it when it leaves.
  void note_failure(int rank, const std::string& reason);
  std::string failure_of(int rank);

  struct Loss {
    int rank = 0;
    std::string reason = {};
  };
  /// To be called several times a second by a rank that waits for the `missing` ones. Returns the first of
  /// them that is lost, and warns of those that are late.
  std::optional<Loss> find_lost(std::span<const int> missing);

 private:
  std::deque<RankProgress> progress_;
  Mutex mutex_;
  PeerWatch peers_ STRATA_GUARDED_BY(mutex_);
  WatchOptions options_ STRATA_GUARDED_BY(mutex_);
  std::vector<bool> late_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::string> failures_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::detail

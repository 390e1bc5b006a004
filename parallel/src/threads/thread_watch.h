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
  struct Findings {
    std::optional<Loss> loss = {};  ///< the first of the missing ranks that is lost or has failed
    /// Warnings about ranks that are late, and about any that goes on.
    std::vector<std::string> warnings = {};
  };
  /// To be called several times a second by a rank that waits for the `missing` ones, and has since
  /// `since_ns` or longer.
  Findings find_lost(std::span<const int> missing, std::int64_t since_ns);
  /// Calls WatchOptions::warn, which may block, throw or call set(): so the caller holds no lock.
  void warn(std::span<const std::string> warnings);
  /// The clock of the times above.
  static std::int64_t now_ns();

 private:
  void note_progress(Findings& findings) STRATA_REQUIRES(mutex_);
  void judge(int rank, std::int64_t now, Findings& findings) STRATA_REQUIRES(mutex_);

  std::deque<RankProgress> progress_;
  Mutex mutex_;
  PeerWatch peers_ STRATA_GUARDED_BY(mutex_);
  WatchOptions options_ STRATA_GUARDED_BY(mutex_);
  // Both are indexed by rank: RankPosition::changes when the rank was found late, 0 if it is not; and why it
  // has failed.
  std::vector<std::uint64_t> late_at_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::string> failures_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::detail

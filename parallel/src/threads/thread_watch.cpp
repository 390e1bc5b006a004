#include "threads/thread_watch.h"

#include <chrono>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ThreadWatch::ThreadWatch(int n_ranks)
    : progress_(static_cast<std::size_t>(n_ranks)),
      peers_(n_ranks, now_ns()),
      late_(static_cast<std::size_t>(n_ranks)),
      failures_(static_cast<std::size_t>(n_ranks)) {}

void ThreadWatch::set(const WatchOptions& options) {
  const MutexLock lock(mutex_);
  options_ = options;
  peers_.set(options);
}

void ThreadWatch::note_failure(int rank, const std::string& reason) {
  const MutexLock lock(mutex_);
  failures_[static_cast<std::size_t>(rank)] = reason;
}

std::string ThreadWatch::failure_of(int rank) {
  const MutexLock lock(mutex_);
  return failures_[static_cast<std::size_t>(rank)];
}

std::optional<ThreadWatch::Loss> ThreadWatch::find_lost(std::span<const int> missing) {
  const MutexLock lock(mutex_);
  if (options_.heartbeat_s <= 0) return std::nullopt;
  const std::int64_t now = now_ns();
  for (std::size_t rank = 0; rank < progress_.size(); ++rank)
    peers_.heard(static_cast<int>(rank), progress_[rank].position(), now);
  for (const int rank : missing) {
    const PeerWatch::Verdict verdict = peers_.judge(rank, true, now);
    if (verdict.state == PeerWatch::State::lost) return Loss{rank, verdict.reason};
    const bool late = verdict.state == PeerWatch::State::late;
    if (late != late_[static_cast<std::size_t>(rank)] && options_.warn)
      options_.warn(str("rank ", rank, " of ", progress_.size(), ": ",
                        late ? verdict.reason + "; the others wait for it" : "it goes on"));
    late_[static_cast<std::size_t>(rank)] = late;
  }
  return std::nullopt;
}

}  // namespace strata::detail

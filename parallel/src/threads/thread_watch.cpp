#include "threads/thread_watch.h"

#include <chrono>
#include <functional>

#include <strata/runtime/str.h>

namespace strata::detail {

std::int64_t ThreadWatch::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

ThreadWatch::ThreadWatch(int n_ranks)
    : progress_(static_cast<std::size_t>(n_ranks)),
      peers_(n_ranks, now_ns()),
      late_at_(static_cast<std::size_t>(n_ranks)),
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

ThreadWatch::Findings ThreadWatch::find_lost(std::span<const int> missing, std::int64_t since_ns) {
  Findings findings;
  const MutexLock lock(mutex_);
  for (const int rank : missing)
    if (const std::string& failure = failures_[static_cast<std::size_t>(rank)]; !failure.empty()) {
      findings.loss = Loss{rank, failure};
      return findings;
    }
  if (options_.heartbeat_s <= 0) return findings;
  const std::int64_t now = now_ns();
  peers_.tick(now, since_ns);
  for (std::size_t rank = 0; rank < progress_.size(); ++rank)
    peers_.heard(static_cast<int>(rank), progress_[rank].position(), now);
  note_progress(findings);
  for (const int rank : missing)
    if (!findings.loss) judge(rank, now, findings);
  return findings;
}

void ThreadWatch::note_progress(Findings& findings) {
  for (std::size_t rank = 0; rank < late_at_.size(); ++rank) {
    if (late_at_[rank] == 0 || late_at_[rank] == peers_.last(static_cast<int>(rank)).changes) continue;
    late_at_[rank] = 0;
    findings.warnings.push_back(str("rank ", rank, " of ", late_at_.size(), ": it goes on"));
  }
}

void ThreadWatch::judge(int rank, std::int64_t now, Findings& findings) {
  const PeerWatch::Verdict verdict = peers_.judge(rank, true, now);
  std::uint64_t& late_at = late_at_[static_cast<std::size_t>(rank)];
  if (verdict.state == PeerWatch::State::lost) findings.loss = Loss{rank, verdict.reason};
  if (verdict.state != PeerWatch::State::late || late_at != 0) return;
  late_at = peers_.last(rank).changes;
  findings.warnings.push_back(
      str("rank ", rank, " of ", late_at_.size(), ": ", verdict.reason, "; the others wait for it"));
}

void ThreadWatch::warn(std::span<const std::string> warnings) {
  std::function<void(std::string_view)> to;
  {
    const MutexLock lock(mutex_);
    to = options_.warn;
  }
  if (!to) return;
  for (const std::string& warning : warnings) {
    try {
      to(warning);
    } catch (...) {  // code of the caller; its rank goes on waiting
    }
  }
}

}  // namespace strata::detail

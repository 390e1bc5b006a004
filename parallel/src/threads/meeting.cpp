#include "threads/meeting.h"

#include <chrono>
#include <condition_variable>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {
constexpr std::chrono::milliseconds kLook{250};  // how often a rank that waits looks for lost ones
}

WatchedRanks WatchedRanks::part(std::span<const int> members) const {
  WatchedRanks some{watch, {}};
  for (const int member : members)
    some.world_ranks.push_back(watch == nullptr ? member : world_ranks[static_cast<std::size_t>(member)]);
  return some;
}

Meeting::Meeting(int size, WatchedRanks ranks)
    : size_(size), ranks_(std::move(ranks)), came_(static_cast<std::size_t>(size)) {
  missing_.reserve(came_.size());
  for (auto& set : contributions_) set.resize(static_cast<std::size_t>(size));
}

Result<std::span<const Contribution>> Meeting::meet(int rank, const Contribution& mine) {
  const MutexLock lock(mutex_);
  const std::uint64_t now = meeting_;
  std::vector<Contribution>& set = contributions_[now % 2];
  set[static_cast<std::size_t>(rank)] = mine;
  came_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_ == size_) {
    arrived_ = 0;
    came_.assign(came_.size(), false);
    ++meeting_;
    changed_.notify_all();
  }
  while (meeting_ == now && left_ < 0) wait();
  if (meeting_ == now) {
    --arrived_;
    came_[static_cast<std::size_t>(rank)] = false;
    return Status::error(Code::lost_peer, str("rank ", left_, " of ", size_, " has left the group",
                                              why_.empty() ? "" : ": ", why_));
  }
  return std::span<const Contribution>(set);
}

void Meeting::wait() {
  if (ranks_.watch == nullptr) return changed_.wait(mutex_);
  const std::int64_t since_ns = ThreadWatch::now_ns();
  if (changed_.wait_for(mutex_, kLook) == std::cv_status::timeout) look_for_lost(since_ns);
}

void Meeting::look_for_lost(std::int64_t since_ns) {
  missing_.clear();
  for (int rank = 0; rank < size_; ++rank)
    if (!came_[static_cast<std::size_t>(rank)])
      missing_.push_back(ranks_.world_ranks[static_cast<std::size_t>(rank)]);
  const ThreadWatch::Findings found = ranks_.watch->find_lost(missing_, since_ns);
  if (found.loss && left_ < 0) {
    for (int rank = 0; rank < size_; ++rank)
      if (ranks_.world_ranks[static_cast<std::size_t>(rank)] == found.loss->rank) left_ = rank;
    why_ = found.loss->reason;
    changed_.notify_all();
  }
  if (found.warnings.empty()) return;
  mutex_.unlock();
  ranks_.watch->warn(found.warnings);
  mutex_.lock();
}

void Meeting::leave(int rank) {
  const MutexLock lock(mutex_);
  if (left_ < 0) {
    left_ = rank;
    if (ranks_.watch != nullptr)
      why_ = ranks_.watch->failure_of(ranks_.world_ranks[static_cast<std::size_t>(rank)]);
  }
  changed_.notify_all();
}

}  // namespace strata::detail

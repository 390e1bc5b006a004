#include "threads/meeting.h"

#include <strata/runtime/str.h>

namespace strata::detail {

Meeting::Meeting(int size) : size_(size) {
  for (auto& set : contributions_) set.resize(static_cast<std::size_t>(size));
}

Result<std::span<const Contribution>> Meeting::meet(int rank, const Contribution& mine) {
  const MutexLock lock(mutex_);
  const std::uint64_t now = meeting_;
  std::vector<Contribution>& set = contributions_[now % 2];
  set[static_cast<std::size_t>(rank)] = mine;
  if (++arrived_ == size_) {
    arrived_ = 0;
    ++meeting_;
    changed_.notify_all();
  }
  while (meeting_ == now && left_ < 0) changed_.wait(mutex_);
  if (meeting_ == now) {
    --arrived_;
    return Status::error(Code::lost_peer, str("rank ", left_, " of ", size_, " has left the group"));
  }
  return std::span<const Contribution>(set);
}

void Meeting::leave(int rank) {
  const MutexLock lock(mutex_);
  if (left_ < 0) left_ = rank;
  changed_.notify_all();
}

}  // namespace strata::detail

#include "backend/sim/sim_scheduler.h"

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/backend/sim_world.h>

namespace strata {
namespace detail {

SimScheduler::SimScheduler(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) turn_of_.push_back(std::make_unique<Condition>());
  if (ranks == 1) turn_ = 0;
  ranks_.front().waits = ranks > 1;
}

bool SimScheduler::is_met(const Rank& rank) const {
  return is_stuck_ || rank.until_ns <= now_ns_ || (rank.goal && rank.lanes->is_complete(*rank.goal));
}

// Whoever has just waited goes on if it can, so that threads change no more often than necessary.
int SimScheduler::find_next(int first) const {
  const auto goes_on = [&](int rank) {
    const Rank& of = ranks_[static_cast<std::size_t>(rank)];
    return of.waits && is_met(of);
  };
  if (first != kNobody && goes_on(first)) return first;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (goes_on(rank)) return rank;
  return kNobody;
}

// Completes what takes no time; one rank's may release another's.
void SimScheduler::settle() {
  for (bool again = true; again;) {
    again = false;
    for (Rank& rank : ranks_)
      if (rank.lanes != nullptr && rank.lanes->settle()) again = ranks_.size() > 1;
  }
  for (Rank& rank : ranks_)
    if (rank.lanes != nullptr) rank.lanes->report();
}

// To the next end of work or of a wait for a time, or to work that was queued for then. Returns whether there
// is any.
bool SimScheduler::advance() {
  double step = kNever, until = kNever;
  for (Rank& rank : ranks_) {
    if (rank.lanes != nullptr) {
      step = std::min(step, rank.lanes->next_end_ns());
      until = std::min(until, rank.lanes->next_queued_ns());
    }
    if (rank.waits) until = std::min(until, rank.until_ns);
  }
  if (std::min(step, until) == kNever) return false;
  const bool ends = now_ns_ + step <= until;
  const double passed = std::max(ends ? step : until - now_ns_, 0.0);
  now_ns_ = ends ? now_ns_ + passed : until;
  for (Rank& rank : ranks_)
    if (rank.lanes != nullptr) rank.lanes->pass(passed);
  return true;
}

void SimScheduler::pass_on(int from) {
  for (;;) {
    settle();
    turn_ = find_next(from);
    const bool nobody_waits =
        std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.waits; });
    if (turn_ != kNobody) ranks_[static_cast<std::size_t>(turn_)].waits = false;
    if (turn_ != kNobody || nobody_waits) break;
    if (!advance()) {
      STRATA_ASSERT(ranks_.size() > 1, "deadlock: the wait for lane ",
                    static_cast<int>(ranks_.front().goal->lane), " can never end");
      is_stuck_ = true;
    }
  }
  if (turn_ != kNobody && turn_ != from) turn_of_[static_cast<std::size_t>(turn_)]->notify_one();
}

void SimScheduler::wait_for_turn(int rank) {
  while (turn_ != rank) turn_of_[static_cast<std::size_t>(rank)]->wait(mutex_);
}

void SimScheduler::enter(int rank) {
  if (ranks_.size() == 1) return;
  const MutexLock lock(mutex_);
  if (++entered_ == static_cast<int>(ranks_.size())) pass_on(kNobody);
  wait_for_turn(rank);
}

void SimScheduler::leave(int rank) {
  const MutexLock lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)] = {.waits = false};
  pass_on(kNobody);
}

void SimScheduler::run(int rank, double until_ns, std::optional<SimPoint> goal) {
  const MutexLock lock(mutex_);
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  mine.waits = true;
  mine.until_ns = until_ns;
  mine.goal = goal;
  pass_on(rank);
  wait_for_turn(rank);
}

Status SimScheduler::status() const {
  if (!is_stuck_) return {};
  return Status::error(Code::lost_peer, "the simulated ranks wait for each other for ever");
}

}  // namespace detail

SimWorld::SimWorld(int ranks) : scheduler_(std::make_unique<detail::SimScheduler>(ranks)) {}
SimWorld::~SimWorld() = default;

Status SimWorld::status() const { return scheduler_->status(); }

SimWorld::Turn::Turn(SimWorld& world, int rank) : world_(world), rank_(rank) {
  world_.scheduler().enter(rank_);
}
SimWorld::Turn::~Turn() { world_.scheduler().leave(rank_); }

}  // namespace strata

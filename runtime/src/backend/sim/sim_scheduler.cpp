#include "backend/sim/sim_scheduler.h"

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/backend/sim_world.h>

namespace strata {
namespace detail {

SimScheduler::SimScheduler(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
  if (ranks == 1) turn_ = 0;
  ranks_.front().waits = ranks > 1;
}

bool SimScheduler::is_met(const Rank& rank) const {
  return is_stuck_ || rank.until_ns <= now_ns_ || (rank.goal && rank.lanes->is_complete(*rank.goal));
}

// Whoever has just waited goes on if it can, so that stacks change no more often than necessary.
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
}

void SimScheduler::run_ranks(const std::function<void(int)>& body) {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    fibers_.push_back(std::make_unique<Fiber>([this, rank, &body] {
      body(rank);
      ranks_[static_cast<std::size_t>(rank)] = {.waits = false};
      pass_on(kNobody);
    }));
  for (Rank& rank : ranks_) rank.waits = true;
  pass_on(kNobody);
  while (turn_ != kNobody) fibers_[static_cast<std::size_t>(turn_)]->resume();
  fibers_.clear();
}

void SimScheduler::run(int rank, double until_ns, std::optional<SimPoint> goal) {
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  mine.waits = true;
  mine.until_ns = until_ns;
  mine.goal = goal;
  pass_on(rank);
  if (turn_ != rank) fibers_[static_cast<std::size_t>(rank)]->suspend();
}

Status SimScheduler::status() const {
  if (!is_stuck_) return {};
  return Status::error(Code::lost_peer, "the simulated ranks wait for each other for ever");
}

}  // namespace detail

SimWorld::SimWorld(int ranks) : scheduler_(std::make_unique<detail::SimScheduler>(ranks)) {}
SimWorld::~SimWorld() = default;

Status SimWorld::status() const { return scheduler_->status(); }

void SimWorld::run(const std::function<void(int)>& body) { scheduler_->run_ranks(body); }

}  // namespace strata

#include "replayed_stall_meter.h"

#include <algorithm>
#include <utility>

namespace strata::detail {

ReplayedStallMeter::ReplayedStallMeter(const Clock& clock, Trace::Track* track, std::function<void()> collect)
    : ReplayClock(clock.now_ns()),
      StallMeter(static_cast<const ReplayClock&>(*this), track),
      told_by_(clock),
      collect_(std::move(collect)) {
  kept_.reserve(kMostKept);
}

void ReplayedStallMeter::keep(Change change) noexcept {
  const MutexLock lock(kept_mutex_);
  if (kept_.size() == kMostKept) make_changes(INT64_MAX);  // a device that tells nothing for so long is late
  change.serial = told_++;
  kept_.push_back(change);
}

StallMeter::Host ReplayedStallMeter::set(Host host) noexcept {
  Change change{told_by_.now_ns(), 0, StreamRole::compute, {}, host};
  Host before;
  {
    const MutexLock lock(kept_mutex_);
    before = std::exchange(host_told_, host);
  }
  keep(change);
  return before;
}

void ReplayedStallMeter::make_changes(std::int64_t until_ns) noexcept {
  std::sort(kept_.begin(), kept_.end(), [](const Change& a, const Change& b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.serial < b.serial;
  });
  const auto end =
      std::find_if(kept_.begin(), kept_.end(), [&](const Change& change) { return change.at_ns > until_ns; });
  for (auto change = kept_.begin(); change != end; ++change) {
    advance_to(change->at_ns);
    if (change->host)
      static_cast<void>(StallMeter::set(*change->host));
    else
      StallMeter::set(change->role, change->lane);
  }
  kept_.erase(kept_.begin(), end);
}

void ReplayedStallMeter::settle(std::int64_t until_ns) noexcept {
  const MutexLock lock(kept_mutex_);
  make_changes(until_ns);
  advance_to(until_ns);
}

StallTimes ReplayedStallMeter::times() noexcept {
  if (collect_) collect_();
  return StallMeter::times();
}

}  // namespace strata::detail

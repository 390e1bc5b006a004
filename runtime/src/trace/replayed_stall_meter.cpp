#include "trace/replayed_stall_meter.h"

#include <algorithm>
#include <utility>

namespace strata::detail {

ReplayedStallMeter::ReplayedStallMeter(const Clock& clock, Trace::Track* track, std::function<void()> collect)
    : ReplayClock(clock.now_ns()),
      StallMeter(static_cast<const ReplayClock&>(*this), track),
      source_clock_(clock),
      collect_(std::move(collect)) {
  changes_.reserve(kMaxChanges);
}

void ReplayedStallMeter::enqueue(Change change) noexcept {
  const MutexLock lock(changes_mutex_);
  if (changes_.size() == kMaxChanges)
    apply_changes(INT64_MAX);  // a device that reports nothing for this long is late anyway
  change.serial = next_serial_++;
  changes_.push_back(change);
}

StallMeter::HostState ReplayedStallMeter::set(HostState host) noexcept {
  Change change{source_clock_.now_ns(), 0, StreamRole::compute, {}, host};
  HostState before;
  {
    const MutexLock lock(changes_mutex_);
    before = std::exchange(host_state_, host);
  }
  enqueue(change);
  return before;
}

void ReplayedStallMeter::apply_changes(std::int64_t until_ns) noexcept {
  std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.serial < b.serial;
  });
  const auto end = std::find_if(changes_.begin(), changes_.end(),
                                [&](const Change& change) { return change.at_ns > until_ns; });
  for (auto change = changes_.begin(); change != end; ++change) {
    advance_to(change->at_ns);
    if (change->host)
      static_cast<void>(StallMeter::set(*change->host));
    else
      StallMeter::set(change->role, change->state);
  }
  changes_.erase(changes_.begin(), end);
}

void ReplayedStallMeter::apply_until(std::int64_t until_ns) noexcept {
  const MutexLock lock(changes_mutex_);
  apply_changes(until_ns);
  advance_to(until_ns);
}

StallTimes ReplayedStallMeter::times() noexcept {
  if (collect_) collect_();
  return StallMeter::times();
}

}  // namespace strata::detail

#include <strata/runtime/trace/stall_meter.h>

#include <utility>

namespace strata {
namespace {

StallCause cause_of(StreamRole busy) noexcept {
  switch (busy) {
    case StreamRole::h2d:
      return StallCause::h2d;
    case StreamRole::d2h:
      return StallCause::d2h;
    case StreamRole::cpu:
      return StallCause::optimizer;
    case StreamRole::collective:
      return StallCause::collective;
    case StreamRole::compute:
      break;
  }
  return StallCause::host;
}

}  // namespace

std::string_view to_string(StallCause cause) noexcept {
  constexpr std::array<const char*, kStallCauses> names = {"h2d",        "d2h",  "optimizer", "nvme",
                                                           "collective", "data", "host"};
  return names[static_cast<std::size_t>(cause)];
}

StallTimes& StallTimes::operator+=(const StallTimes& more) noexcept {
  computing_ns += more.computing_ns;
  for (std::size_t i = 0; i < kStallCauses; ++i) stalled_ns[i] += more.stalled_ns[i];
  return *this;
}

StallTimes StallTimes::operator-(const StallTimes& before) const noexcept {
  StallTimes since = *this;
  since.computing_ns -= before.computing_ns;
  for (std::size_t i = 0; i < kStallCauses; ++i) since.stalled_ns[i] -= before.stalled_ns[i];
  return since;
}

StallMeter::StallMeter(const Clock& clock, Trace::Track* track)
    : clock_(clock), track_(track), charged_until_ns_(clock.now_ns()), stall_began_ns_(charged_until_ns_) {}

// Follows the waits. A stream without work waits for the thread that queues work, and so does any stream that
// waits for it. If that thread waits for a stream in turn, the chain continues there, but only once.
StallCause StallMeter::cause() const noexcept {
  StreamRole at = StreamRole::compute;
  bool asked_host = false;
  for (std::size_t hops = 0; hops <= 2 * kStreamRoles; ++hops) {
    const StreamState& state = streams_[static_cast<std::size_t>(at)];
    if (state.activity == Activity::busy) return cause_of(at);
    if (state.activity == Activity::waits) {
      at = state.on;
      continue;
    }
    if (asked_host || !host_.for_stream) return asked_host ? StallCause::host : host_.cause;
    asked_host = true;
    at = host_.on;
  }
  return StallCause::host;
}

// Charges the time since the last change.
void StallMeter::charge() noexcept {
  const std::int64_t now = clock_.now_ns();
  (computing_ ? times_.computing_ns : times_.stalled_ns[static_cast<std::size_t>(stalled_for_)]) +=
      now - charged_until_ns_;
  charged_until_ns_ = now;
}

// Updates the cause after a change; the time up to the change must have been charged.
void StallMeter::update_cause() noexcept {
  const bool computes = streams_[static_cast<std::size_t>(StreamRole::compute)].activity == Activity::busy;
  const StallCause why = computes ? stalled_for_ : cause();
  if (computes == computing_ && why == stalled_for_) return;
  if (!computing_ && track_ != nullptr)
    track_->span(to_string(stalled_for_).data(), 0, stall_began_ns_, charged_until_ns_);
  computing_ = computes;
  stalled_for_ = why;
  stall_began_ns_ = charged_until_ns_;
}

void StallMeter::set(StreamRole role, StreamState state) noexcept {
  const MutexLock lock(mutex_);
  charge();
  streams_[static_cast<std::size_t>(role)] = state;
  update_cause();
}

StallMeter::HostState StallMeter::set(HostState host) noexcept {
  const MutexLock lock(mutex_);
  charge();
  const HostState before = std::exchange(host_, host);
  update_cause();
  return before;
}

StallTimes StallMeter::times() noexcept {
  const MutexLock lock(mutex_);
  charge();
  return times_;
}

HostWaitScope::HostWaitScope(StallMeter* meter, StallCause cause) noexcept : meter_(meter) {
  if (meter_ != nullptr) before_ = meter_->set(StallMeter::HostState{false, StreamRole::compute, cause});
}
HostWaitScope::HostWaitScope(StallMeter* meter, StreamRole on) noexcept : meter_(meter) {
  if (meter_ != nullptr) before_ = meter_->set(StallMeter::HostState{true, on, StallCause::host});
}
HostWaitScope::~HostWaitScope() {
  if (meter_ != nullptr) (void)meter_->set(before_);
}

}  // namespace strata

#include "backend/sim/sim_lanes.h"

#include <algorithm>
#include <limits>

#include <strata/runtime/assert.h>
#include <strata/runtime/backend/backend.h>

namespace strata::detail {
namespace {

constexpr std::array<const char*, kSimLanes> kNames = {"compute",    "h2d",       "d2h",       "cpu",
                                                       "collective", "nvme_read", "nvme_write"};
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRoundingNs = 1e-3;  // smaller remainders are rounding errors

// The stream role of a lane, if it has one.
std::optional<StreamRole> role_of(std::size_t lane) {
  if (lane >= kStreamRoles) return std::nullopt;
  return static_cast<StreamRole>(lane);
}

}  // namespace

static_assert(static_cast<std::size_t>(SimLane::collective) ==
              static_cast<std::size_t>(StreamRole::collective));
static_assert(static_cast<std::size_t>(SimLane::cpu) == static_cast<std::size_t>(StreamRole::cpu));

SimLanes::SimLanes(const SimOptions& options) : options_(options) {}

void SimLanes::set_trace(Trace& trace) {
  for (std::size_t i = 0; i < kSimLanes; ++i) lanes_[i].track = &trace.add_track(kNames[i]);
}

std::uint64_t SimLanes::push_work(SimLane lane, double ns, const char* label, std::int64_t arg) {
  LaneQueue& to = of(lane);
  if (to.entries.empty()) to.reported = false;
  to.entries.push_back({std::max(ns, 0.0), {}, label, arg, -1});
  return ++to.queued;
}

void SimLanes::push_wait(SimLane lane, SimPoint point) {
  if (is_complete(point)) return;
  LaneQueue& to = of(lane);
  if (to.entries.empty()) to.reported = false;
  to.entries.push_back({-1, point, "", 0, -1});
  ++to.queued;
}

void SimLanes::run_until(SimPoint point) {
  if (is_complete(point)) return;
  run(kNever, point);
  advance(options_.wake_s * 1e9);
}

bool SimLanes::run_until(SimPoint point, double ns) {
  if (!is_complete(point)) run(now_ns_ + ns, point);
  return is_complete(point);
}

// Completes the waits whose point is complete; completing one may release another.
void SimLanes::resolve_waits() {
  for (bool again = true; again;) {
    again = false;
    for (LaneQueue& lane : lanes_)
      while (!lane.entries.empty() && lane.entries.front().left_ns < 0 &&
             is_complete(lane.entries.front().after)) {
        Entry& wait = lane.entries.front();
        again = true;
        if (wait.begun_ns < 0 || options_.wake_s <= 0) {
          finish(lane);
          continue;
        }
        wait.left_ns = options_.wake_s * 1e9;  // the lane was blocked and has to be woken up
        lane.reported = false;
      }
  }
}

void SimLanes::finish(LaneQueue& lane) {
  const Entry& entry = lane.entries.front();
  if (lane.track != nullptr && entry.begun_ns >= 0 && *entry.label != '\0')
    lane.track->span(entry.label, entry.arg, static_cast<std::int64_t>(entry.begun_ns),
                     static_cast<std::int64_t>(now_ns_));
  lane.entries.pop_front();
  ++lane.done;
  lane.reported = false;
}

void SimLanes::report() {
  for (std::size_t i = 0; i < kSimLanes; ++i) {
    LaneQueue& lane = lanes_[i];
    if (!lane.entries.empty() && lane.entries.front().begun_ns < 0) lane.entries.front().begun_ns = now_ns_;
    const std::optional<StreamRole> role = role_of(i);
    if (meter_ == nullptr || !role || lane.reported) continue;
    lane.reported = true;
    if (lane.entries.empty())
      meter_->stream_is_idle(*role);
    else if (lane.entries.front().left_ns >= 0)
      meter_->stream_is_busy(*role);
    else if (const auto on = role_of(static_cast<std::size_t>(lane.entries.front().after.lane)))
      meter_->stream_waits(*role, *on);
  }
}

// Speed of each lane: that allowed by its scarcest shared resource. A share may exceed 1, for a resource that
// slows its users down only when there are several.
std::array<double, kSimLanes> SimLanes::speeds() const noexcept {
  std::array<double, kSimResources> asked{};
  std::array<int, kSimResources> askers{};
  std::array<double, kSimLanes> speed{};
  for (std::size_t i = 0; i < kSimLanes; ++i) {
    if (lanes_[i].entries.empty() || lanes_[i].entries.front().left_ns < 0) continue;
    speed[i] = 1;
    for (std::size_t r = 0; r < kSimResources; ++r) {
      asked[r] += options_.shares[i][r];
      askers[r] += options_.shares[i][r] > 0 ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < kSimLanes; ++i)
    for (std::size_t r = 0; r < kSimResources && speed[i] > 0; ++r)
      if (options_.shares[i][r] > 0 && askers[r] > 1 && asked[r] > 1)
        speed[i] = std::min(speed[i], 1 / asked[r]);
  return speed;
}

void SimLanes::run(double until_ns, std::optional<SimPoint> goal) {
  for (;;) {
    resolve_waits();
    report();
    if (goal && is_complete(*goal)) return;
    const std::array<double, kSimLanes> speed = speeds();
    double step = kNever;
    for (std::size_t i = 0; i < kSimLanes; ++i)
      if (speed[i] > 0) step = std::min(step, lanes_[i].entries.front().left_ns / speed[i]);
    STRATA_ASSERT(!goal || std::min(step, until_ns) < kNever, "deadlock: the wait for lane ",
                  kNames[static_cast<std::size_t>(goal->lane)], " can never end");
    const bool ends = now_ns_ + step <= until_ns;
    const double passed = ends ? step : until_ns - now_ns_;
    now_ns_ += std::max(passed, 0.0);
    for (std::size_t i = 0; i < kSimLanes; ++i) {
      if (speed[i] <= 0) continue;
      LaneQueue& lane = lanes_[i];
      lane.entries.front().left_ns -= passed * speed[i];
      lane.busy_ns += passed;
      if (lane.entries.front().left_ns <= kRoundingNs) {
        lane.entries.front().left_ns = 0;
        finish(lane);
      }
    }
    if (!ends) return;
  }
}

}  // namespace strata::detail

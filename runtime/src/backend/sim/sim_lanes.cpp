#include "backend/sim/sim_lanes.h"

#include <algorithm>
#include <string>
#include <utility>

#include <strata/runtime/backend/backend.h>

namespace strata::detail {
namespace {

constexpr std::array<const char*, kSimLanes> kNames = {"compute",    "h2d",       "d2h",       "cpu",
                                                       "collective", "nvme_read", "nvme_write"};
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

SimLanes::SimLanes(const SimOptions& options, SimScheduler& scheduler, int rank)
    : options_(options), scheduler_(scheduler), rank_(rank) {
  scheduler_.attach(rank_, this);
}
SimLanes::~SimLanes() { scheduler_.attach(rank_, nullptr); }

void SimLanes::set_trace(Trace& trace, std::string_view prefix) {
  for (std::size_t i = 0; i < kSimLanes; ++i)
    lanes_[i].track = &trace.add_track(std::string(prefix) + kNames[i]);
}

std::uint64_t SimLanes::push(SimLane lane, Entry entry) {
  LaneQueue& to = of(lane);
  entry.queued_ns = now_ns();
  to.entries.push_back(std::move(entry));
  return ++to.queued;
}

std::uint64_t SimLanes::push_work(SimLane lane, double ns, const char* label, std::int64_t arg) {
  return push(lane, {.left_ns = std::max(ns, 0.0), .label = label, .arg = arg});
}

std::uint64_t SimLanes::push_meeting(SimLane lane, double ns, const char* label, std::int64_t arg,
                                     std::shared_ptr<SimMeeting> meeting) {
  return push(lane,
              {.left_ns = std::max(ns, 0.0), .label = label, .arg = arg, .meeting = std::move(meeting)});
}

void SimLanes::push_wait(SimLane lane, SimPoint point) {
  if (!is_complete(point)) push(lane, {.left_ns = -1, .after = point});
}

void SimLanes::run_until(SimPoint point) {
  catch_up();
  if (is_complete(point)) return;
  scheduler_.run(rank_, kNever, point);
  advance(options_.wake_s * 1e9);
}

bool SimLanes::run_until(SimPoint point, double ns) {
  catch_up();
  if (!is_complete(point)) scheduler_.run(rank_, now_ns() + ns, point);
  return is_complete(point);
}

// Completing a wait may release another one.
bool SimLanes::settle() {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (LaneQueue& lane : lanes_) {
      Entry* first = front(lane);
      for (; first != nullptr && first->left_ns < 0 && is_complete(first->after); first = front(lane)) {
        again = true;
        if (first->begun_ns < 0 || options_.wake_s <= 0) {
          finish(lane);
          continue;
        }
        first->left_ns = options_.wake_s * 1e9;  // the lane was blocked and has to be woken up
        lane.reported = false;
      }
      if (first == nullptr || first->meeting == nullptr || std::exchange(first->has_arrived, true)) continue;
      ++first->meeting->arrived;
      again = true;
    }
    any = any || again;
  }
  return any;
}

void SimLanes::finish(LaneQueue& lane) {
  const Entry& entry = lane.entries.front();
  if (lane.track != nullptr && entry.begun_ns >= 0 && *entry.label != '\0')
    lane.track->span(entry.label, entry.arg, static_cast<std::int64_t>(entry.begun_ns),
                     static_cast<std::int64_t>(lanes_now_ns()));
  lane.entries.pop_front();
  ++lane.done;
  lane.reported = false;
}

void SimLanes::report() {
  for (std::size_t i = 0; i < kSimLanes; ++i) {
    LaneQueue& lane = lanes_[i];
    Entry* const first = front(lane);
    if (first != nullptr && first->begun_ns < 0) first->begun_ns = lanes_now_ns();
    const std::optional<StreamRole> role = role_of(i);
    const bool changed = std::exchange(lane.was_idle, first == nullptr) != (first == nullptr);
    if (meter_ == nullptr || !role || (lane.reported && !changed)) continue;
    lane.reported = true;
    if (first == nullptr)
      meter_->stream_is_idle(*role);
    else if (first->left_ns >= 0)
      meter_->stream_is_busy(*role);
    else if (const auto on = role_of(static_cast<std::size_t>(first->after.lane)))
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
    if (running(lanes_[i]) == nullptr) continue;
    speed[i] = 1;
    for (std::size_t r = 0; r < kSimResources; ++r) {
      asked[r] += options_.shares[i][r];
      askers[r] += options_.shares[i][r] > 0 ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < kSimLanes; ++i)
    for (std::size_t r = 0; r < kSimResources && speed[i] > 0; ++r)
      if (options_.shares[i][r] > 0 && askers[r] > 1 && asked[r] > 1) {
        const bool is_memory = r == static_cast<std::size_t>(SimResource::memory);
        const double yields = is_memory ? options_.memory_yields[i] : 1;
        speed[i] = std::min(speed[i], 1 / (1 + yields * (asked[r] - 1)));
      }
  return speed;
}

double SimLanes::next_end_ns() {
  speed_ = speeds();
  double step = kNever;
  for (std::size_t i = 0; i < kSimLanes; ++i)
    if (speed_[i] > 0) step = std::min(step, lanes_[i].entries.front().left_ns / speed_[i]);
  return step;
}

double SimLanes::next_queued_ns() const {
  double next = kNever;
  for (const LaneQueue& lane : lanes_)
    if (!lane.entries.empty() && lane.entries.front().queued_ns > lanes_now_ns())
      next = std::min(next, lane.entries.front().queued_ns);
  return next;
}

void SimLanes::pass(double ns) {
  for (std::size_t i = 0; i < kSimLanes; ++i) {
    if (speed_[i] <= 0) continue;
    LaneQueue& lane = lanes_[i];
    lane.entries.front().left_ns -= ns * speed_[i];
    lane.busy_ns += ns;
    if (lane.entries.front().left_ns <= kRoundingNs) {
      lane.entries.front().left_ns = 0;
      finish(lane);
    }
  }
}

}  // namespace strata::detail

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include <strata/runtime/backend/sim_options.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/trace/trace.h>

namespace strata::detail {

/// A point of a lane: the end of its entry `number`.
struct SimPoint {
  SimLane lane = SimLane::compute;
  std::uint64_t number = 0;
};

/// In-order queues in virtual time whose work shares resources. Time is a double in nanoseconds, which
/// represents a day to a hundredth of a nanosecond. Used by one thread.
class SimLanes {
 public:
  explicit SimLanes(const SimOptions& options);

  double now_ns() const noexcept { return now_ns_; }
  /// Queues work that takes `ns` nanoseconds when undisturbed and returns its number. `label` must be a
  /// string literal.
  std::uint64_t push_work(SimLane lane, double ns, const char* label, std::int64_t arg);
  /// Makes what is queued on `lane` after this call wait for `point`.
  void push_wait(SimLane lane, SimPoint point);
  std::uint64_t queued(SimLane lane) const noexcept { return of(lane).queued; }
  bool is_complete(SimPoint point) const noexcept { return of(point.lane).done >= point.number; }

  /// Lets time pass: for `ns`, or until `point` is complete (asserts that it will be).
  void advance(double ns) { run(now_ns_ + ns, std::nullopt); }
  void run_until(SimPoint point);
  /// Lets time pass until `point` is complete, but for at most `ns`; returns whether it is complete.
  bool run_until(SimPoint point, double ns);

  double busy_ns(SimLane lane) const noexcept { return of(lane).busy_ns; }
  /// Set where the activity of lanes is reported; the meter may be null.
  void set_meter(StallMeter* meter) noexcept { meter_ = meter; }
  void set_trace(Trace& trace);

 private:
  struct Entry {
    double left_ns = 0;  ///< remaining work; negative: the entry is a wait
    SimPoint after{};
    const char* label = "";
    std::int64_t arg = 0;
    double begun_ns = -1;
  };
  struct LaneQueue {
    std::deque<Entry> entries;
    std::uint64_t queued = 0, done = 0;
    double busy_ns = 0;
    Trace::Track* track = nullptr;
    bool reported = false;  ///< whether the meter knows the activity of the front entry
  };
  LaneQueue& of(SimLane lane) noexcept { return lanes_[static_cast<std::size_t>(lane)]; }
  const LaneQueue& of(SimLane lane) const noexcept { return lanes_[static_cast<std::size_t>(lane)]; }
  void run(double until_ns, std::optional<SimPoint> goal);
  void resolve_waits();
  void report();
  std::array<double, kSimLanes> speeds() const noexcept;
  void finish(LaneQueue& lane);

  const SimOptions options_;
  std::array<LaneQueue, kSimLanes> lanes_;
  double now_ns_ = 0;
  StallMeter* meter_ = nullptr;
};

}  // namespace strata::detail

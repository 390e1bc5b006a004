#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include <strata/runtime/simulation.h>
#include <strata/runtime/stall_meter.h>

namespace strata::detail {

/// A place in a lane: after so many of its entries.
struct SimPoint {
  SimLane lane = SimLane::compute;
  std::uint64_t number = 0;
};

/// In-order queues over virtual time, whose work shares resources. Time is a double of nanoseconds, which
/// holds a day to the hundredth. One thread.
class SimLanes {
 public:
  explicit SimLanes(const SimOptions& options);

  double now_ns() const noexcept { return now_ns_; }
  /// Queues work of `ns` undisturbed nanoseconds; its number. `label` is a literal.
  std::uint64_t push_work(SimLane lane, double ns, const char* label, std::int64_t arg);
  /// What is queued on `lane` after this waits for `point`.
  void push_wait(SimLane lane, SimPoint point);
  std::uint64_t queued(SimLane lane) const noexcept { return of(lane).queued; }
  bool is_complete(SimPoint point) const noexcept { return of(point.lane).done >= point.number; }

  /// Time passes: so long, or until `point` is complete (asserts that it will be).
  void advance(double ns) { run(now_ns_ + ns, std::nullopt); }
  void run_until(SimPoint point);
  /// The same for `ns` at most; whether it is complete.
  bool run_until(SimPoint point, double ns);

  double busy_ns(SimLane lane) const noexcept { return of(lane).busy_ns; }
  /// Where lanes tell what they do; both may be null.
  void set_meter(StallMeter* meter) noexcept { meter_ = meter; }
  void set_trace(Trace& trace);

 private:
  struct Entry {
    double left_ns = 0;  ///< of work; below 0: it waits
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
    bool reported = false;  ///< the meter of what stands in front
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

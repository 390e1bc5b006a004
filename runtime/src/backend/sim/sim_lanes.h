#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>

#include <strata/runtime/backend/sim_options.h>
#include <strata/runtime/backend/sim_world.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/trace/trace.h>

#include "backend/sim/sim_point.h"
#include "backend/sim/sim_scheduler.h"

namespace strata::detail {

/// The in-order queues of a rank in virtual time, whose work shares resources. Used by one thread.
class SimLanes final : public SimRank {
 public:
  SimLanes(const SimOptions& options, SimScheduler& scheduler, int rank);
  ~SimLanes() override;

  double now_ns() const noexcept { return scheduler_.now_ns(); }
  /// Queues work that takes `ns` nanoseconds when undisturbed and returns its number. `label` must be a
  /// string literal.
  std::uint64_t push_work(SimLane lane, double ns, const char* label, std::int64_t arg);
  /// The same of work that begins together with that of other ranks.
  std::uint64_t push_meeting(SimLane lane, double ns, const char* label, std::int64_t arg,
                             std::shared_ptr<SimMeeting> meeting);
  /// Makes what is queued on `lane` after this call wait for `point`.
  void push_wait(SimLane lane, SimPoint point);
  std::uint64_t queued(SimLane lane) const noexcept { return of(lane).queued; }
  bool is_complete(SimPoint point) const noexcept override { return of(point.lane).done >= point.number; }

  /// Lets time pass: for `ns`, or until `point` is complete.
  void advance(double ns) { scheduler_.run(rank_, now_ns() + ns, std::nullopt); }
  void run_until(SimPoint point);
  /// Lets time pass until `point` is complete, but for at most `ns`; returns whether it is complete.
  bool run_until(SimPoint point, double ns);

  double busy_ns(SimLane lane) const noexcept { return of(lane).busy_ns; }
  /// Set where the activity of lanes is reported; the meter may be null.
  void set_meter(StallMeter* meter) noexcept { meter_ = meter; }
  void set_trace(Trace& trace, std::string_view prefix);

  bool settle() override;
  void report() override;
  double next_end_ns() override;
  void pass(double ns) override;

 private:
  struct Entry {
    double left_ns = 0;  ///< remaining work; negative: the entry is a wait
    SimPoint after{};
    const char* label = "";
    std::int64_t arg = 0;
    double begun_ns = -1;
    std::shared_ptr<SimMeeting> meeting = nullptr;
    bool has_arrived = false;
    bool runs() const noexcept { return left_ns >= 0 && (meeting == nullptr || meeting->is_complete()); }
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
  std::uint64_t push(SimLane lane, Entry entry);
  std::array<double, kSimLanes> speeds() const noexcept;
  void finish(LaneQueue& lane);

  const SimOptions options_;
  SimScheduler& scheduler_;
  const int rank_;
  std::array<LaneQueue, kSimLanes> lanes_;
  std::array<double, kSimLanes> speed_{};  // until the next end
  StallMeter* meter_ = nullptr;
};

}  // namespace strata::detail

#pragma once

#include <algorithm>
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

  /// The time of the thread that queues work: it runs ahead of the lanes until it waits, or asks what they
  /// have done.
  double now_ns() const noexcept { return std::max(queued_until_ns_, scheduler_.now_ns()); }
  double lanes_now_ns() const noexcept { return scheduler_.now_ns(); }
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

  /// The thread that queues work is busy for `ns`.
  void spend(double ns) noexcept { queued_until_ns_ = now_ns() + ns; }
  /// Lets the lanes run until the thread's time.
  void catch_up() {
    if (queued_until_ns_ > lanes_now_ns()) advance(0);
  }
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
  double next_queued_ns() const override;
  void pass(double ns) override;

 private:
  struct Entry {
    double left_ns = 0;  ///< remaining work; negative: the entry is a wait
    SimPoint after{};
    const char* label = "";
    std::int64_t arg = 0;
    double queued_ns = 0;  ///< it does not begin before
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
    bool reported = false;  ///< whether the meter knows what the lane does
    bool was_idle = true;   ///< when it was told
  };
  LaneQueue& of(SimLane lane) noexcept { return lanes_[static_cast<std::size_t>(lane)]; }
  const LaneQueue& of(SimLane lane) const noexcept { return lanes_[static_cast<std::size_t>(lane)]; }
  /// The entry that the lane works on now; null: nothing.
  Entry* front(LaneQueue& lane) const noexcept {
    return lane.entries.empty() || lane.entries.front().queued_ns > lanes_now_ns() ? nullptr
                                                                                   : &lane.entries.front();
  }
  const Entry* running(const LaneQueue& lane) const noexcept {
    const bool is_there = !lane.entries.empty() && lane.entries.front().queued_ns <= lanes_now_ns();
    return is_there && lane.entries.front().runs() ? &lane.entries.front() : nullptr;
  }
  std::uint64_t push(SimLane lane, Entry entry);
  std::array<double, kSimLanes> speeds() const noexcept;
  void finish(LaneQueue& lane);

  const SimOptions options_;
  SimScheduler& scheduler_;
  const int rank_;
  double queued_until_ns_ = 0;
  std::array<LaneQueue, kSimLanes> lanes_;
  std::array<double, kSimLanes> speed_{};  // until the next end
  StallMeter* meter_ = nullptr;
};

}  // namespace strata::detail

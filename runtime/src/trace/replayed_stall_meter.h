#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <strata/runtime/trace/stall_meter.h>

namespace strata::detail {

/// The clock of the replayed changes.
class ReplayClock : public Clock {
 public:
  explicit ReplayClock(std::int64_t now_ns) : now_ns_(now_ns) {}
  std::int64_t now_ns() const noexcept override { return now_ns_.load(std::memory_order_relaxed); }
  void wait_until(std::int64_t) override {}
  void advance_to(std::int64_t ns) noexcept {
    if (ns > now_ns()) now_ns_.store(ns, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> now_ns_;
};

/// The stall meter of a device that reports only afterwards when its streams did what. Changes are stored
/// with their times and applied in time order once everything before them has been reported. The host reports
/// immediately, by the same clock. Thread-safe; allocates nothing after construction.
class ReplayedStallMeter final : private ReplayClock, public StallMeter {
 public:
  /// `clock` is the clock of the reported times. times() calls `collect`, which must report everything known
  /// so far.
  ReplayedStallMeter(const Clock& clock, Trace::Track* track, std::function<void()> collect);

  void busy(StreamRole role, std::int64_t at_ns) noexcept {
    enqueue({at_ns, 0, role, StreamState{Activity::busy, role}, {}});
  }
  void idle(StreamRole role, std::int64_t at_ns) noexcept {
    enqueue({at_ns, 0, role, StreamState{Activity::idle, role}, {}});
  }
  void waits(StreamRole role, StreamRole on, std::int64_t at_ns) noexcept {
    enqueue({at_ns, 0, role, StreamState{Activity::waits, on}, {}});
  }
  /// Declares that everything up to `until_ns` has been reported, and charges the time up to it. A change
  /// reported later with an earlier time counts as if it happened at `until_ns`.
  void apply_until(std::int64_t until_ns) noexcept;

  StallTimes times() noexcept override;

 private:
  struct Change {
    std::int64_t at_ns = 0;
    std::uint64_t serial = 0;  // order in which changes of the same time were reported
    StreamRole role = StreamRole::compute;
    StreamState state;
    std::optional<HostState> host;  // set for a change of the host instead of a stream
  };
  static constexpr std::size_t kMaxChanges = 1 << 15;

  void set(StreamRole role, StreamState state) noexcept override {
    enqueue({source_clock_.now_ns(), 0, role, state, {}});
  }
  HostState set(HostState host) noexcept override;
  void enqueue(Change change) noexcept STRATA_EXCLUDES(changes_mutex_);
  void apply_changes(std::int64_t until_ns) noexcept STRATA_REQUIRES(changes_mutex_);

  const Clock& source_clock_;
  const std::function<void()> collect_;
  Mutex changes_mutex_;  // taken before the base class's mutex
  std::vector<Change> changes_ STRATA_GUARDED_BY(changes_mutex_);
  std::uint64_t next_serial_ STRATA_GUARDED_BY(changes_mutex_) = 0;
  HostState host_state_ STRATA_GUARDED_BY(changes_mutex_);
};

}  // namespace strata::detail

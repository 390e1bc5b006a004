#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <strata/runtime/stall_meter.h>

namespace strata::detail {

/// The time of what is replayed.
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

/// The meter of a device that tells only afterwards when its streams did what: changes are kept with their
/// times and made in the order of these once everything before has been told. The host tells at once, by the
/// same clock. Thread-safe; allocates nothing after it was made.
class ReplayedStallMeter final : private ReplayClock, public StallMeter {
 public:
  /// `clock` is that of the times told. `collect` is called where times() are asked for: it tells what is
  /// known by now.
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
  /// What happened until then has been told; the time until then is charged. What is told of earlier times
  /// after this counts as if it happened then.
  void apply_until(std::int64_t until_ns) noexcept;

  StallTimes times() noexcept override;

 private:
  struct Change {
    std::int64_t at_ns = 0;
    std::uint64_t serial = 0;  // in which order those of one time were told
    StreamRole role = StreamRole::compute;
    StreamState state;
    std::optional<HostState> host;  // of the host, and not of a lane
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
  Mutex changes_mutex_;  // taken before the base's
  std::vector<Change> changes_ STRATA_GUARDED_BY(changes_mutex_);
  std::uint64_t next_serial_ STRATA_GUARDED_BY(changes_mutex_) = 0;
  HostState host_state_ STRATA_GUARDED_BY(changes_mutex_);
};

}  // namespace strata::detail

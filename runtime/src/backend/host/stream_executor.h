#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/backend/host_backend_options.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/trace/trace.h>

namespace strata::detail {

/// Runs `call` and converts exceptions to a Status. Meanwhile in_host_call() is true on this thread.
Status run_host_call(const HostCall& call, ThreadPool& pool) noexcept;
/// Whether this thread is running a HostCall, which must not call the Backend.
bool in_host_call() noexcept;

/// One direction of the link. Thread-safe.
class PacedLink {
 public:
  explicit PacedLink(const CopyLink& rate) : rate_(rate) {}
  bool paced() const noexcept { return rate_.gb_per_s > 0 || rate_.latency_us > 0; }
  std::int64_t duration_ns(std::size_t bytes) const noexcept;
  /// Reserves the link for `duration_ns` as soon as it is free, but not before `ready_ns`. Returns the start
  /// time.
  std::int64_t reserve(std::int64_t ready_ns, std::int64_t duration_ns) STRATA_EXCLUDES(mutex_);
  /// Call if the copy took longer than reserved: the link is free from `end_ns` on.
  void extend(std::int64_t end_ns) STRATA_EXCLUDES(mutex_);

 private:
  const CopyLink rate_;
  Mutex mutex_;
  std::int64_t free_at_ns_ STRATA_GUARDED_BY(mutex_) = INT64_MIN;
};

/// One entry of a stream's queue.
struct StreamEntry {
  enum class Kind : std::uint8_t { call, copy, poison, wait, fail };
  Kind kind = Kind::call;
  bool to_device = false, from_device = false;  // copy
  HostCall call;
  BufferView dst;                  // copy, poison
  const std::byte* src = nullptr;  // copy
  Event event;                     // wait
  Event own;                       // the event that follows it
  Trace::Track* track = nullptr;   // gets a span, if the stream is traced
  Status failure;                  // fail: what the check found when the entry was queued
  std::int64_t queued_ns = 0;
};

/// Runs entries that depend only on the order of their own stream, and counts them. Thread-safe.
///
/// Pacing: a paced entry ends at its start plus its duration. It starts when its stream and its link are free
/// and it has been queued, all in Clock time. The next paced entry starts at that end, not when a sleeping
/// worker woke up, so wake-up delays do not accumulate over a step.
class StreamExecutor {
 public:
  StreamExecutor(const HostBackendOptions& options, ThreadPool& pool, Clock& clock);

  struct Outcome {
    Status status;
    std::int64_t end_ns = 0;
  };
  /// Runs `entry`, which is not a wait, for a stream of `role` that is free from `ready_ns` on.
  Outcome run(const StreamEntry& entry, StreamRole role, std::int64_t ready_ns) noexcept;
  std::int64_t now_ns() const noexcept { return clock_.now_ns(); }
  void count(BackendCounters& into) const noexcept;

 private:
  Outcome run_call(const HostCall& call, std::int64_t ready_ns);
  Outcome run_copy(const StreamEntry& entry, StreamRole role, std::int64_t ready_ns);

  const bool timed_, paced_, skip_;
  ThreadPool& pool_;
  Clock& clock_;
  PacedLink h2d_, d2h_;
  std::atomic<std::uint64_t> copies_{0};
  std::array<std::atomic<std::uint64_t>, kStreamRoles> copied_bytes_{};
  std::array<std::atomic<std::int64_t>, kStreamRoles> busy_ns_{};
};

}  // namespace strata::detail

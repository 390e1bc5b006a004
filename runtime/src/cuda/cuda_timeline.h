#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/trace.h>

#include "replayed_stall_meter.h"

namespace strata::detail {

inline constexpr std::size_t kMarkRing = 1024;  ///< marks of a stream that its device may be behind

/// Times of a GPU's events on the host's clock. A mark has happened after it was queued and before it was
/// seen; within that the GPU's own clock counts, moved by as little as these bounds ask for.
class GpuClock {
 public:
  /// `gpu_ns` is the time since some moment of the GPU's.
  std::int64_t to_host_ns(double gpu_ns, std::int64_t queued_ns, std::int64_t seen_ns) noexcept;

 private:
  double offset_ns_ = 0;
  bool has_offset_ = false;
};

/// When a stream began and ended to work, and began to wait: timed CUDA events between its work, read when
/// they have passed. What they tell goes to a stall meter, into busy times and into a trace. A stream works
/// from the first work after a wait, or after a recording, to the next of either. A stream whose work the
/// host does and times itself (the CPU's) has no marks: add_host_span() and add_host_wait() tell of it, by
/// one clock.
class CudaTimeline {
 public:
  /// Tracks by role in `trace`, which may be null.
  CudaTimeline(const Clock& clock, Trace* trace);
  ~CudaTimeline();

  /// Makes a stream's events. `id` is below 64 and may come again. How many were made; errors: CUDA's.
  cudaError_t add_stream(int id, StreamRole role, cudaStream_t stream, std::uint64_t& made)
      STRATA_EXCLUDES(mutex_);

  // In stream order, before what they are about is queued.
  cudaError_t mark_begin(int id) STRATA_EXCLUDES(mutex_);
  cudaError_t mark_wait(int id, StreamRole on) STRATA_EXCLUDES(mutex_);
  cudaError_t mark_end(int id) STRATA_EXCLUDES(mutex_);

  /// Work that the host did for a stream and timed itself. Takes no lock that is held over a CUDA call.
  void add_host_span(StreamRole role, const char* label, std::int64_t begin_ns, std::int64_t end_ns) noexcept;
  /// What such a stream waits for next.
  void add_host_wait(StreamRole role, StreamRole on, std::int64_t at_ns) noexcept {
    meter_.waits(role, on, at_ns);
  }

  /// Reads what has passed.
  void collect() STRATA_EXCLUDES(mutex_);
  std::int64_t busy_ns(StreamRole role) const noexcept {
    return busy_ns_[static_cast<std::size_t>(role)].load(std::memory_order_relaxed);
  }
  ReplayedStallMeter& meter() noexcept { return meter_; }

 private:
  enum class Kind : std::uint8_t { begin, wait, end };
  struct Mark {
    Kind kind = Kind::end;
    StreamRole on = StreamRole::compute;
    std::int64_t queued_ns = 0;
    cudaEvent_t event = nullptr;
  };
  struct StreamTimeline {
    StreamRole role = StreamRole::compute;
    cudaStream_t stream = nullptr;
    std::vector<Mark> marks;  // a ring; its events are made once
    std::uint64_t pushed = 0, passed = 0;
    Kind last_pushed = Kind::end;  // by the marks pushed
    bool busy = false;             // by the marks passed
    std::int64_t since_ns = 0;     // busy since
    std::int64_t last_ns = 0;      // of the last mark passed
    double last_gpu_ns = 0;        // the same by the GPU's clock
  };

  cudaError_t push(StreamTimeline& timeline, Kind kind, StreamRole on) STRATA_REQUIRES(mutex_);
  void collect_locked() STRATA_REQUIRES(mutex_);
  bool read_mark(StreamTimeline& timeline) STRATA_REQUIRES(mutex_);
  void move_origin(std::int64_t settled_ns) STRATA_REQUIRES(mutex_);

  const Clock& clock_;
  std::array<Trace::Track*, kStreamRoles> tracks_{};
  ReplayedStallMeter meter_;
  std::array<std::atomic<std::int64_t>, kStreamRoles> busy_ns_{};

  // Held over CUDA calls, so that no callback of the driver may take it.
  Mutex mutex_;
  std::vector<StreamTimeline> timelines_ STRATA_GUARDED_BY(mutex_);
  cudaEvent_t origin_ STRATA_GUARDED_BY(mutex_) =
      nullptr;  // an event that has passed, by which others are timed
  bool origin_passed_ STRATA_GUARDED_BY(mutex_) = false;
  double origin_gpu_ns_ STRATA_GUARDED_BY(mutex_) = 0;
  GpuClock gpu_clock_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::detail

#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/trace/trace.h>

#include "trace/replayed_stall_meter.h"

namespace strata::detail {

inline constexpr std::size_t kMarkRing = 1024;  ///< marks by which a stream may be ahead of its device

/// Maps times of GPU events to the host's clock. A mark completed after it was queued and before it was seen
/// complete. Within these bounds the GPU's own clock is followed; its offset is changed only as much as the
/// bounds require.
class GpuClock {
 public:
  /// `gpu_ns` is the time since some fixed moment on the GPU's clock.
  std::int64_t to_host_ns(double gpu_ns, std::int64_t queued_ns, std::int64_t seen_ns) noexcept;

 private:
  double offset_ns_ = 0;
  bool has_offset_ = false;
};

/// Tracks when each stream was busy, idle or waiting, by timing CUDA events recorded between its work and
/// read once they have completed. The results go to a stall meter, busy times and a trace. A stream counts as
/// busy from its first work after a wait or a recording to the next wait or recording. The CPU stream, whose
/// work the host runs and times itself, has no marks; add_host_span() and add_host_wait() report it in host
/// time.
class CudaTimeline {
 public:
  /// Adds a track per role to `trace`, which may be null.
  CudaTimeline(const Clock& clock, Trace* trace);
  ~CudaTimeline();

  /// Creates a stream's events; `made` is increased by their number. `id` is below 64 and may be reused.
  /// Returns CUDA's error.
  cudaError_t add_stream(int id, StreamRole role, cudaStream_t stream, std::uint64_t& made)
      STRATA_EXCLUDES(mutex_);

  // Call these in stream order, before the work or wait that they mark is queued.
  /// `sequence`: of the first event that covers the work.
  cudaError_t mark_begin(int id, std::uint64_t sequence) STRATA_EXCLUDES(mutex_);
  cudaError_t mark_wait(int id, StreamRole on) STRATA_EXCLUDES(mutex_);
  cudaError_t mark_end(int id) STRATA_EXCLUDES(mutex_);

  /// Adds work that the host ran for a stream and timed itself. Takes no lock that is held over a CUDA call.
  void add_host_span(StreamRole role, const char* label, std::int64_t begin_ns, std::int64_t end_ns,
                     const Event& covered_by) noexcept;
  /// Reports what such a stream waits for next.
  void add_host_wait(StreamRole role, StreamRole on, std::int64_t at_ns) noexcept {
    meter_.waits(role, on, at_ns);
  }

  /// Reads the marks that have completed.
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
    std::uint64_t sequence = 0;  // begin: of the work
    std::int64_t queued_ns = 0;
    cudaEvent_t event = nullptr;
  };
  struct StreamTimeline {
    StreamRole role = StreamRole::compute;
    cudaStream_t stream = nullptr;
    std::vector<Mark> marks;  // a ring; its events are created once
    std::uint64_t pushed = 0, passed = 0;
    Kind last_pushed = Kind::end;  // kind of the last mark pushed
    bool busy = false;             // state after the last mark passed
    std::int64_t since_ns = 0;     // start of the present busy interval
    std::uint64_t sequence = 0;    // the sequence number of that interval's work
    std::int64_t last_ns = 0;      // host time of the last mark passed
    double last_gpu_ns = 0;        // the same on the GPU's clock
  };

  cudaError_t push(StreamTimeline& timeline, Kind kind, StreamRole on, std::uint64_t sequence = 0)
      STRATA_REQUIRES(mutex_);
  void collect_locked() STRATA_REQUIRES(mutex_);
  bool read_mark(StreamTimeline& timeline) STRATA_REQUIRES(mutex_);
  void move_origin(std::int64_t settled_ns) STRATA_REQUIRES(mutex_);

  const Clock& clock_;
  std::array<Trace::Track*, kStreamRoles> tracks_{};
  ReplayedStallMeter meter_;
  std::array<std::atomic<std::int64_t>, kStreamRoles> busy_ns_{};

  // Held over CUDA calls, so the driver's callback thread must not take it.
  Mutex mutex_;
  std::vector<StreamTimeline> timelines_ STRATA_GUARDED_BY(mutex_);
  cudaEvent_t origin_ STRATA_GUARDED_BY(mutex_) =
      nullptr;  // a completed event, the reference for cudaEventElapsedTime
  bool origin_passed_ STRATA_GUARDED_BY(mutex_) = false;
  double origin_gpu_ns_ STRATA_GUARDED_BY(mutex_) = 0;
  GpuClock gpu_clock_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::detail

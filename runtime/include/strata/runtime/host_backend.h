#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_pool.h>
#include <strata/runtime/trace.h>

namespace strata {

/// One direction of the link between pinned and device memory. A copy takes the longer of its memcpy and
/// `latency_us` + bytes / `gb_per_s` (1e9 bytes); both zero: as fast as memcpy. Copies of one direction share
/// it.
struct CopyLink {
  double gb_per_s = 0;
  double latency_us = 0;
};

enum class StreamSchedule : std::uint8_t {
  threads,       ///< each stream is a worker thread
  latest_legal,  ///< no workers: work runs only when somebody waits for it, and only what that wait needs
};

struct HostBackendOptions {
  std::size_t device_bytes = 0;  ///< cap on device memory; 0: none
  std::size_t pinned_bytes = 0;  ///< cap on pinned memory; 0: none
  StreamSchedule schedule = StreamSchedule::threads;
  bool check = false;            ///< happens-before check of every access (allocates; for tests)
  CopyLink h2d = {}, d2h = {};   ///< ignored, like pacing, under latest_legal, which has order and no time
  bool paced_compute = false;    ///< HostCall::paced_ns is the least time a call takes
  bool skip_arithmetic = false;  ///< with paced_compute: paced calls take their time and compute nothing
  bool huge_pages = true;
  Trace* trace = nullptr;  ///< gets a track a stream role, with a span for each call and copy, and one of
                           ///< what compute waited for; outlives the backend
  std::size_t queue_depth = 1024;  ///< entries a stream holds before its feeder has to wait
};

/// A complete device in host memory: capped memory, in-order streams, rate-limited links. `pool` and `clock`
/// must outlive it. Under latest_legal or `check`, new, discarded and freed memory is filled with 0xFF (NaN
/// in every float type) and freed memory is kept aside for a while, so that a use in the wrong order shows.
/// Under latest_legal an is_complete() that answers false moves the event one entry nearer, so that polling
/// ends. Errors: `invalid` for options that contradict each other.
Result<std::unique_ptr<Backend>> create_host_backend(const HostBackendOptions& options, ThreadPool& pool,
                                                     Clock& clock);

}  // namespace strata

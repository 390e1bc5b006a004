#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/status.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

/// Speed of one direction of the link between pinned and device memory. A copy takes as long as its memcpy or
/// `latency_us` + bytes / `gb_per_s` (1e9 bytes/s), whichever is longer; if both are zero, as long as its
/// memcpy. Copies of one direction share the link.
struct CopyLink {
  double gb_per_s = 0;
  double latency_us = 0;
};

enum class StreamSchedule : std::uint8_t {
  threads,       ///< each stream is a worker thread
  latest_legal,  ///< no worker threads: an entry runs only when a wait needs it
};

struct HostBackendOptions {
  std::size_t device_bytes = 0;  ///< cap on device memory; 0: none
  std::size_t pinned_bytes = 0;  ///< cap on pinned memory; 0: none
  StreamSchedule schedule = StreamSchedule::threads;
  bool check = false;            ///< happens-before check of every access (allocates; for tests)
  CopyLink h2d = {}, d2h = {};   ///< ignored under latest_legal, as all pacing is: it has order but no time
  bool paced_compute = false;    ///< HostCall::paced_ns is the minimum time that a call takes
  bool skip_arithmetic = false;  ///< with paced_compute: paced calls take their time but compute nothing
  bool huge_pages = true;
  Trace* trace = nullptr;  ///< gets a track per stream role with a span for each call and copy, and a track
                           ///< of compute stalls; must outlive the backend
  std::size_t queue_depth = 1024;  ///< entries a stream holds before the thread that queues work blocks
};

/// Creates a complete device in host memory: capped memory, in-order streams, rate-limited links. `pool` and
/// `clock` must outlive it. Under latest_legal or `check`, new, discarded and freed memory is filled with
/// 0xFF (NaN in every float type), and freed memory stays mapped for a while, so that an access in the wrong
/// order is noticed. Under latest_legal an is_complete() that returns false first advances the event by one
/// entry, so that polling terminates. Errors: `invalid` for options that contradict each other.
Result<std::unique_ptr<Backend>> create_host_backend(const HostBackendOptions& options, ThreadPool& pool,
                                                     Clock& clock);

}  // namespace strata

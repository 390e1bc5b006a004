#pragma once

#include <cstddef>
#include <cstdint>

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
  bool skip_arithmetic = false;  ///< needs paced_compute: paced calls take their time but compute nothing
  bool huge_pages = true;
  Trace* trace = nullptr;  ///< gets a track per stream role with a span for each call and copy, and a track
                           ///< of compute stalls; must outlive the backend
  std::size_t queue_depth = 1024;  ///< entries a stream holds before the thread that queues work blocks
};

}  // namespace strata

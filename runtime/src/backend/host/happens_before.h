#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

#include "backend/host/host_allocator.h"

namespace strata::detail {

/// Finds accesses that are not ordered by any event. Streams and the host carry vector clocks with one entry
/// sequence per stream. A stream's order is fixed when work is queued, so all accesses are checked at that
/// time, independently of when they run, and the result is the same in every run. The host's own accesses
/// need no record, because work queued later is ordered after them. All host threads count as one.
/// Thread-safe; its lock is taken before HostAllocator's.
class HappensBefore {
 public:
  explicit HappensBefore(const HostAllocator& memory) : memory_(memory) {}

  void open_stream(int stream, StreamRole role) STRATA_EXCLUDES(mutex_);
  /// Records that entry `sequence` of `stream` touches `accesses`. Errors: `internal`, naming both sites.
  Status queued(int stream, std::uint64_t sequence, const char* label, std::span<const Access> accesses)
      STRATA_EXCLUDES(mutex_);
  void recorded(const Event& event) STRATA_EXCLUDES(mutex_);
  /// Records that entry `sequence` of `stream` waits for `event`.
  void waits(int stream, std::uint64_t sequence, const Event& event) STRATA_EXCLUDES(mutex_);
  void host_waited(const Event& event) STRATA_EXCLUDES(mutex_);
  Status host_access(const Access& access) STRATA_EXCLUDES(mutex_);

  /// Queued work that still needed a freed buffer; stream -1 if there was none.
  struct Pending {
    Event site;
    Status error;
  };
  Pending freed(BufferView view) STRATA_EXCLUDES(mutex_);

  std::size_t records() STRATA_EXCLUDES(mutex_);

 private:
  /// One access by one entry of a stream.
  struct Site {
    int stream = -1;
    std::uint64_t sequence = 0;
    const char* label = "";
    Access access;
  };
  /// The bytes from its key to `end`, which have the same last accesses.
  struct Segment {
    const std::byte* end = nullptr;
    Site writer;                // stream -1: no writer
    std::vector<Site> readers;  // since that write; at most one per stream
  };
  using Segments = std::map<const std::byte*, Segment>;
  using VectorClock = std::vector<std::uint64_t>;
  struct Snapshot {
    std::uint64_t sequence;
    VectorClock clock;
  };
  struct StreamClock {
    StreamRole role = StreamRole::compute;
    VectorClock clock;
    std::deque<Snapshot> events;
  };

  static void join(VectorClock& into, const VectorClock& from);
  static bool covers(const VectorClock& clock, const Site& site);
  static void drop_covered(std::vector<Site>& sites, const VectorClock& clock);
  const VectorClock* snapshot_of(const Event& event) STRATA_REQUIRES(mutex_);
  VectorClock& tick(int stream, std::uint64_t sequence) STRATA_REQUIRES(mutex_);
  const Site* conflict(const Access& access, const VectorClock& clock) STRATA_REQUIRES(mutex_);
  void remember(const Site& site) STRATA_REQUIRES(mutex_);
  void split_at(const std::byte* at) STRATA_REQUIRES(mutex_);
  void drop_host_covered_records() STRATA_REQUIRES(mutex_);
  Status check_allocation(const char* label, const Access& access) const;
  std::string describe(const Site& site) STRATA_REQUIRES(mutex_);

  const HostAllocator& memory_;
  Mutex mutex_;
  std::vector<StreamClock> streams_ STRATA_GUARDED_BY(mutex_);
  VectorClock host_ STRATA_GUARDED_BY(mutex_);
  Segments segments_ STRATA_GUARDED_BY(mutex_);
  std::size_t sweep_at_ STRATA_GUARDED_BY(mutex_) = 1024;
};

}  // namespace strata::detail

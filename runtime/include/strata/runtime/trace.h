#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/clock.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

namespace strata {

/// Records what every lane did when, as Chrome trace events (Perfetto and chrome://tracing open the file).
///
/// A track is a lane (compute, h2d, d2h, nvme_read ...) with a ring of its own, allocated when the track is
/// added; recording allocates nothing and drops the track's oldest event when the ring is full, so that a
/// chatty lane never pushes out another. Spans on one track must nest or follow each other, as those of one
/// in-order lane do.
///
/// Thread-safe. Each ring has a mutex rather than a single-writer protocol: a lane has one writer nearly
/// always, an uncontended lock costs about as much as the clock read beside it, and write() may then run
/// while others record.
class Trace {
 public:
  struct Options {
    std::size_t events_per_track = 32768;  ///< 40 bytes each, resident from the start
  };
  class Track;

  explicit Trace(const Clock& clock) : Trace(clock, Options{}) {}
  Trace(const Clock& clock, Options options);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// A lane, shown in the order of the calls; of a name that there is already, the same one. Lives as long as
  /// the Trace. Allocates.
  Track& add_track(std::string name);
  /// Off, recording costs one load; on at first. The caller turns it on for the steps that log.trace names.
  void set_enabled(bool on) noexcept { enabled_.store(on, std::memory_order_relaxed); }
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// Writes all that is held, beside `path` and then renamed over it, in blocks and from one ring at a
  /// time: the JSON is several times the rings. Recording may go on. Errors: what `io` meets.
  Status write(Io& io, const std::string& path);

 private:
  friend class TraceSpan;
  const Clock& clock_;
  Options options_;
  std::atomic<bool> enabled_{true};
  Mutex mutex_;
  std::vector<std::unique_ptr<Track>> tracks_ STRATA_GUARDED_BY(mutex_);
};

/// One lane of a Trace. Labels are string literals: the pointer is kept until the trace is written.
class Trace::Track {
 public:
  /// Something that took from begin to end. `arg` is shown beside it (a chunk id, a byte count).
  void span(const char* label, std::int64_t arg, std::int64_t begin_ns, std::int64_t end_ns) noexcept;
  /// The value of a curve from now on, such as the bytes used in a tier.
  void counter(const char* label, std::int64_t value) noexcept;
  /// Events the ring had no room for.
  std::uint64_t dropped() noexcept;

 private:
  friend class Trace;
  friend class TraceSpan;
  enum class Kind : std::uint8_t { span, counter };
  struct Event {
    const char* label;
    std::int64_t arg;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    Kind kind;
  };
  Track(Trace& trace, std::string name, int id, std::size_t capacity);
  void push(const Event& event) noexcept;
  std::vector<Event> snapshot(std::uint64_t& dropped);

  Trace& trace_;
  const std::string name_;
  const int id_;
  Mutex mutex_;
  std::vector<Event> ring_ STRATA_GUARDED_BY(mutex_);
  std::uint64_t pushed_ STRATA_GUARDED_BY(mutex_) = 0;
};

/// Records a span from its construction to its end of life.
class TraceSpan {
 public:
  TraceSpan(Trace::Track& track, const char* label, std::int64_t arg = 0) noexcept;
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace::Track* track_;  // null where the trace was off when the span began
  const char* label_;
  std::int64_t arg_;
  std::int64_t begin_ns_ = 0;
};

}  // namespace strata

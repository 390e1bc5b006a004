#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

namespace strata {

/// Records the activity of every lane over time as Chrome trace events (Perfetto and chrome://tracing open
/// the file).
///
/// A track is a lane (compute, h2d, d2h, nvme_read ...) with a ring buffer of its own, allocated when the
/// track is added. Recording allocates nothing and overwrites the track's oldest event when the ring is full,
/// so that a busy lane never displaces the events of another. Spans on one track must nest or follow each
/// other, as those of an in-order lane do.
///
/// Thread-safe. Each ring has a mutex rather than a single-writer protocol: a lane nearly always has one
/// writer, an uncontended lock costs about as much as the clock read next to it, and write() may then run
/// while others record.
class Trace {
 public:
  struct Options {
    std::size_t events_per_track = 32768;  ///< 40 bytes each, resident from the start
    std::size_t notes = 131072;            ///< 64 bytes each, resident once notes() was called
    std::string process = "strata";        ///< whose tracks they are
  };
  class Track;
  class Notes;
  /// Work as its queue counts it, by which notes refer to the spans that show it. A stream gives its work the
  /// sequence number of the first event that covers it.
  struct Work {
    static constexpr std::int32_t kNone = -1, kStore = -2;  ///< kStore: the requests of the NVMe store
    std::int32_t queue = kNone;                             ///< the id of a stream, or one of these
    std::uint64_t number = 0;
  };
  /// A fact about an object, which has a kind and a number. All texts are string literals.
  struct Note {
    const char* what = "";  ///< names what happens to the object: "copy"
    const char* kind = "";
    std::int64_t number = 0;
    const char* place = "";   ///< where: "device"
    Work last{};              ///< the last work that does it
    std::uint64_t after = 0;  ///< and the number before the first
    std::int64_t at_ns = 0;   ///< set by Notes::add()
  };
  /// A recorded interval.
  struct Span {
    const char* label;
    std::int64_t arg, begin_ns, end_ns;
    Work work;
  };
  struct TrackSpans {
    std::string name;
    std::vector<Span> spans;  ///< sorted by begin
  };

  explicit Trace(const Clock& clock) : Trace(clock, Options{}) {}
  Trace(const Clock& clock, Options options);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Adds a track for a lane, shown in the order of the calls; if the name exists already, returns that
  /// track. It lives as long as the Trace. Allocates.
  Track& add_track(std::string name);
  /// Enables or disables recording; a disabled trace costs one load per event. Enabled at first. The caller
  /// enables it for the steps that log.trace selects.
  void set_enabled(bool on) noexcept { enabled_.store(on, std::memory_order_relaxed); }
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// Notes about the objects that the spans of all tracks work on. Allocates when it is called first.
  Notes& notes();

  /// A copy of the intervals of all tracks.
  std::vector<TrackSpans> spans();
  /// A copy of the notes, in the order in which they were added.
  std::vector<Note> all_notes();
  /// Writes all recorded events to a temporary file beside `path`, which is then renamed to `path`. The JSON
  /// is several times larger than the rings, so it is written in blocks, one ring at a time. Recording may
  /// continue meanwhile. Errors: those of `io`.
  Status write(Io& io, const std::string& path);

 private:
  friend class TraceSpan;
  std::vector<Track*> tracks();
  std::vector<Note> copy_notes(std::uint64_t& dropped);

  const Clock& clock_;
  Options options_;
  std::atomic<bool> enabled_{true};
  Mutex mutex_;
  std::vector<std::unique_ptr<Track>> tracks_ STRATA_GUARDED_BY(mutex_);
  std::unique_ptr<Notes> notes_ STRATA_GUARDED_BY(mutex_);
};

/// A ring of its own, of which the oldest are overwritten. Thread-safe; adding allocates nothing.
///
/// Spans say when a lane worked and not on what: their work is queued by code that knows memory and no
/// objects. Whoever moves objects notes, in the order in which it queues the work, which work moves or uses
/// which one.
class Trace::Notes {
 public:
  bool enabled() const noexcept { return trace_.enabled(); }
  /// Records a note with the present time, if the trace is enabled.
  void add(const Note& note) noexcept {
    if (enabled()) add_always(note);
  }
  /// Also while the trace is disabled: for what later notes cannot be understood without.
  void add_always(Note note) noexcept;

 private:
  friend class Trace;
  explicit Notes(Trace& trace) : trace_(trace), ring_(std::max<std::size_t>(1, trace.options_.notes)) {}
  std::vector<Note> snapshot(std::uint64_t& dropped);

  Trace& trace_;
  Mutex mutex_;
  std::vector<Note> ring_ STRATA_GUARDED_BY(mutex_);
  std::uint64_t pushed_ STRATA_GUARDED_BY(mutex_) = 0;
};

/// One lane of a Trace. Labels must be string literals: only the pointer is stored until the trace is
/// written.
class Trace::Track {
 public:
  /// Records an interval. `arg` is shown beside it (a number, a byte count); `work` is what notes refer to.
  void span(const char* label, std::int64_t arg, std::int64_t begin_ns, std::int64_t end_ns,
            Work work = {}) noexcept;
  /// Records the value of a curve from now on, such as the bytes used in a tier.
  void counter(const char* label, std::int64_t value) noexcept;
  /// Events overwritten because the ring was full.
  std::uint64_t dropped() noexcept;

 private:
  friend class Trace;
  friend class TraceSpan;
  enum class Kind : std::uint8_t { span, counter };
  static constexpr std::uint64_t kNumbers = (std::uint64_t{1} << 40) - 1;
  struct TraceEvent {
    const char* label;
    std::int64_t arg;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    Kind kind : 8;
    std::int32_t queue : 16;  // the queue of the work; a backend has at most 256 streams
    std::uint64_t number : 40;
  };
  static_assert(sizeof(TraceEvent) == 40);
  Track(Trace& trace, std::string name, int id, std::size_t capacity);
  void push(const TraceEvent& event) noexcept;
  std::vector<TraceEvent> snapshot(std::uint64_t& dropped);
  void append_event(std::string& out, const TraceEvent& event, std::int64_t first_ns) const;

  Trace& trace_;
  const std::string name_;
  const int id_;
  Mutex mutex_;
  std::vector<TraceEvent> ring_ STRATA_GUARDED_BY(mutex_);
  std::uint64_t pushed_ STRATA_GUARDED_BY(mutex_) = 0;
};

/// Records a span from its construction to its destruction.
class TraceSpan {
 public:
  TraceSpan(Trace::Track& track, const char* label, std::int64_t arg = 0) noexcept;
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace::Track* track_;  // null if the trace was disabled when the span began
  const char* label_;
  std::int64_t arg_;
  std::int64_t begin_ns_ = 0;
};

}  // namespace strata

#include <strata/runtime/trace/trace.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::size_t kBlockBytes = 256 * 1024;

/// Collects text and writes it to the file in blocks.
class BlockWriter {
 public:
  explicit BlockWriter(File& file) : file_(file) {}
  std::string& text() { return text_; }
  Status flush_past(std::size_t limit) {
    if (text_.size() <= limit) return Status::ok();
    std::span<const char> rest(text_);
    while (!rest.empty()) {
      STRATA_TRY_ASSIGN(const std::size_t n, file_.write_at(offset_, std::as_bytes(rest)));
      if (n == 0)
        return Status::error(Code::io_error,
                             str(file_.path(), ": a write of ", rest.size(), " bytes took none"));
      offset_ += n;
      rest = rest.subspan(n);
    }
    text_.clear();
    return Status::ok();
  }

 private:
  File& file_;
  std::string text_;
  std::uint64_t offset_ = 0;
};

/// Trace timestamps are microseconds; three decimals keep the nanoseconds.
void append_us(std::string& out, std::int64_t ns) {
  fmt::format_to(std::back_inserter(out), "{}.{:03}", ns / 1000, ns % 1000);
}

// Returns calendar time, so that traces of several machines can be shown together. `age_ns`: how long ago it
// was.
std::int64_t unix_ns(std::int64_t age_ns) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - age_ns;
}

std::string prelude(std::string_view dropped, std::int64_t age_ns, std::string_view process) {
  return str("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"begin_unix_ns\":", unix_ns(age_ns),
             ",\"dropped_events\":{", dropped, "}},\"traceEvents\":[\n",
             "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":",
             json_string(process), "}}");
}

// Names a track and gives it its place.
void append_track(std::string& out, int id, std::string_view name) {
  out += str(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":", id,
             ",\"name\":\"thread_name\",\"args\":{\"name\":", json_string(name), "}}");
  out += str(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":", id,
             ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":", id, "}}");
}

// Texts are literals without characters that JSON escapes.
void append_note(std::string& out, const Trace::Note& note, std::int64_t first_ns, bool first) {
  out += str(first ? "\n" : ",\n", "[\"", note.what, "\",\"", note.kind, "\",", note.number, ",\"",
             note.place, "\",", note.last.queue, ",", note.after, ",", note.last.number, ",");
  append_us(out, std::max<std::int64_t>(0, note.at_ns - first_ns));
  out += ']';
}

}  // namespace

Trace::Trace(const Clock& clock, Options options) : clock_(clock), options_(std::move(options)) {}
Trace::~Trace() = default;

Trace::Track& Trace::add_track(std::string name) {
  MutexLock lock(mutex_);
  for (const auto& track : tracks_)
    if (track->name_ == name) return *track;  // a later engine continues in the tracks of an earlier one
  const int id = static_cast<int>(tracks_.size()) + 1;
  tracks_.emplace_back(
      new Track(*this, std::move(name), id, std::max<std::size_t>(1, options_.events_per_track)));
  return *tracks_.back();
}

std::vector<Trace::Track*> Trace::tracks() {
  MutexLock lock(mutex_);
  std::vector<Track*> all;
  for (const auto& track : tracks_) all.push_back(track.get());
  return all;
}

std::vector<Trace::TrackSpans> Trace::spans() {
  std::vector<TrackSpans> all;
  for (Track* track : tracks()) {
    TrackSpans& copy = all.emplace_back(TrackSpans{track->name_, {}});
    std::uint64_t dropped = 0;
    for (const Track::TraceEvent& event : track->snapshot(dropped))
      if (event.kind == Track::Kind::span)
        copy.spans.push_back({event.label,
                              event.arg,
                              event.begin_ns,
                              event.end_ns,
                              {std::int32_t{event.queue}, std::uint64_t{event.number}}});
  }
  return all;
}

Trace::Notes& Trace::notes() {
  MutexLock lock(mutex_);
  if (notes_ == nullptr) notes_.reset(new Notes(*this));
  return *notes_;
}

std::vector<Trace::Note> Trace::all_notes() {
  std::uint64_t dropped = 0;
  return copy_notes(dropped);
}

std::vector<Trace::Note> Trace::copy_notes(std::uint64_t& dropped) {
  Notes* notes = nullptr;
  {
    MutexLock lock(mutex_);
    notes = notes_.get();
  }
  return notes == nullptr ? std::vector<Note>() : notes->snapshot(dropped);
}

Status Trace::write(Io& io, const std::string& path) {
  const std::vector<Track*> tracks = this->tracks();
  std::uint64_t lost = 0;
  const std::vector<Note> notes = copy_notes(lost);
  std::string dropped = lost > 0 ? str("\"notes\":", lost) : std::string();
  // Copies one ring at a time: the rings themselves are already most of what a process may hold besides its
  // plan.
  const std::int64_t now_ns = clock_.now_ns();
  std::int64_t first_ns = now_ns;
  for (const Note& note : notes) first_ns = std::min(first_ns, note.at_ns);
  for (Track* track : tracks) {
    for (const Track::TraceEvent& event : track->snapshot(lost))
      first_ns = std::min(first_ns, event.begin_ns);
    dropped += str(dropped.empty() ? "" : ",", json_string(track->name_), ":", lost);
  }
  const std::string part = path + ".part";
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(part, OpenMode::truncate));
  BlockWriter out(*file);
  out.text() = prelude(dropped, now_ns - first_ns, options_.process);
  for (Track* track : tracks) {
    append_track(out.text(), track->id_, track->name_);
    for (const Track::TraceEvent& event : track->snapshot(lost)) {
      track->append_event(out.text(), event, first_ns);
      STRATA_TRY(out.flush_past(kBlockBytes));
    }
  }
  // Behind the events, since readers of Chrome traces stop at the first name that they do not know.
  out.text() += "\n],\"notes\":[";
  for (std::size_t i = 0; i < notes.size(); ++i) {
    append_note(out.text(), notes[i], first_ns, i == 0);
    STRATA_TRY(out.flush_past(kBlockBytes));
  }
  out.text() += "\n]}\n";
  STRATA_TRY(out.flush_past(0));
  return io.rename(part, path);
}

void Trace::Track::append_event(std::string& out, const TraceEvent& event, std::int64_t first_ns) const {
  const bool span = event.kind == Kind::span;
  out += str(",\n{\"ph\":\"", span ? "X" : "C", "\",\"pid\":1,\"tid\":", id_, ",\"ts\":");
  append_us(out, std::max<std::int64_t>(0, event.begin_ns - first_ns));  // some may be new
  if (span) append_us(out += ",\"dur\":", event.end_ns - event.begin_ns);
  out +=
      str(",\"name\":", json_string(event.label), ",\"args\":{\"", span ? "arg" : "value", "\":", event.arg);
  if (event.queue != Work::kNone)
    out += str(",\"queue\":", std::int32_t{event.queue}, ",\"work\":", std::uint64_t{event.number});
  out += "}}";
}

Trace::Track::Track(Trace& trace, std::string name, int id, std::size_t capacity)
    : trace_(trace), name_(std::move(name)), id_(id), ring_(capacity) {}

void Trace::Notes::add_always(Note note) noexcept {
  note.at_ns = trace_.clock_.now_ns();
  MutexLock lock(mutex_);
  ring_[static_cast<std::size_t>(pushed_ % ring_.size())] = note;
  ++pushed_;
}

/// In the order in which they were added.
std::vector<Trace::Note> Trace::Notes::snapshot(std::uint64_t& dropped) {
  MutexLock lock(mutex_);
  const auto held = static_cast<std::size_t>(std::min<std::uint64_t>(pushed_, ring_.size()));
  dropped = pushed_ - held;
  std::vector<Note> notes;
  notes.reserve(held);
  for (std::uint64_t i = dropped; i < pushed_; ++i)
    notes.push_back(ring_[static_cast<std::size_t>(i % ring_.size())]);
  return notes;
}

void Trace::Track::span(const char* label, std::int64_t arg, std::int64_t begin_ns, std::int64_t end_ns,
                        Work work) noexcept {
  if (trace_.enabled())
    push({label, arg, begin_ns, std::max(begin_ns, end_ns), Kind::span, work.queue, work.number & kNumbers});
}

void Trace::Track::counter(const char* label, std::int64_t value) noexcept {
  if (!trace_.enabled()) return;
  const std::int64_t now = trace_.clock_.now_ns();
  push({label, value, now, now, Kind::counter, Work::kNone, 0});
}

std::uint64_t Trace::Track::dropped() noexcept {
  MutexLock lock(mutex_);
  return pushed_ - std::min<std::uint64_t>(pushed_, ring_.size());
}

void Trace::Track::push(const TraceEvent& event) noexcept {
  MutexLock lock(mutex_);
  ring_[static_cast<std::size_t>(pushed_ % ring_.size())] = event;
  ++pushed_;
}

/// Sorted by begin and, for equal begins, with the longer event first, so that a parent precedes its
/// children.
std::vector<Trace::Track::TraceEvent> Trace::Track::snapshot(std::uint64_t& dropped) {
  std::vector<TraceEvent> events;
  {
    MutexLock lock(mutex_);
    const std::size_t held = static_cast<std::size_t>(std::min<std::uint64_t>(pushed_, ring_.size()));
    dropped = pushed_ - held;
    events.assign(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(held));
  }
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return events;
}

TraceSpan::TraceSpan(Trace::Track& track, const char* label, std::int64_t arg) noexcept
    : track_(track.trace_.enabled() ? &track : nullptr), label_(label), arg_(arg) {
  if (track_ != nullptr) begin_ns_ = track_->trace_.clock_.now_ns();
}

TraceSpan::~TraceSpan() {
  // Recorded even if the trace was disabled meanwhile, so that a step that began is shown completely.
  if (track_ != nullptr)
    track_->push({label_, arg_, begin_ns_, track_->trace_.clock_.now_ns(), Trace::Track::Kind::span,
                  Trace::Work::kNone, 0});
}

}  // namespace strata

#include <strata/runtime/trace/trace.h>

#include <algorithm>
#include <iterator>
#include <span>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

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

std::string prelude(std::string_view dropped) {
  return str("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":{", dropped,
             "}},\"traceEvents\":[\n",
             "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"strata\"}}");
}

// Names a track and gives it its place.
void append_track(std::string& out, int id, std::string_view name) {
  out += str(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":", id,
             ",\"name\":\"thread_name\",\"args\":{\"name\":", json_string(name), "}}");
  out += str(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":", id,
             ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":", id, "}}");
}

}  // namespace

Trace::Trace(const Clock& clock, Options options) : clock_(clock), options_(options) {}
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
        copy.spans.push_back({event.label, event.arg, event.begin_ns, event.end_ns});
  }
  return all;
}

Status Trace::write(Io& io, const std::string& path) {
  const std::vector<Track*> tracks = this->tracks();
  // Copies one ring at a time: the rings themselves are already most of what a process may hold besides its
  // plan.
  std::int64_t first_ns = clock_.now_ns();
  std::string dropped;
  for (Track* track : tracks) {
    std::uint64_t lost = 0;
    for (const Track::TraceEvent& event : track->snapshot(lost))
      first_ns = std::min(first_ns, event.begin_ns);
    dropped += str(dropped.empty() ? "" : ",", json_string(track->name_), ":", lost);
  }
  const std::string part = path + ".part";
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(part, OpenMode::truncate));
  BlockWriter out(*file);
  out.text() = prelude(dropped);
  for (Track* track : tracks) {
    append_track(out.text(), track->id_, track->name_);
    std::uint64_t lost = 0;
    for (const Track::TraceEvent& event : track->snapshot(lost)) {
      const bool span = event.kind == Track::Kind::span;
      out.text() += str(",\n{\"ph\":\"", span ? "X" : "C", "\",\"pid\":1,\"tid\":", track->id_, ",\"ts\":");
      append_us(out.text(), std::max<std::int64_t>(0, event.begin_ns - first_ns));  // some may be new
      if (span) append_us(out.text() += ",\"dur\":", event.end_ns - event.begin_ns);
      out.text() += str(",\"name\":", json_string(event.label), ",\"args\":{\"", span ? "arg" : "value",
                        "\":", event.arg, "}}");
      STRATA_TRY(out.flush_past(256 * 1024));
    }
  }
  out.text() += "\n]}\n";
  STRATA_TRY(out.flush_past(0));
  return io.rename(part, path);
}

Trace::Track::Track(Trace& trace, std::string name, int id, std::size_t capacity)
    : trace_(trace), name_(std::move(name)), id_(id), ring_(capacity) {}

void Trace::Track::span(const char* label, std::int64_t arg, std::int64_t begin_ns,
                        std::int64_t end_ns) noexcept {
  if (trace_.enabled()) push({label, arg, begin_ns, std::max(begin_ns, end_ns), Kind::span});
}

void Trace::Track::counter(const char* label, std::int64_t value) noexcept {
  if (!trace_.enabled()) return;
  const std::int64_t now = trace_.clock_.now_ns();
  push({label, value, now, now, Kind::counter});
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
    track_->push({label_, arg_, begin_ns_, track_->trace_.clock_.now_ns(), Trace::Track::Kind::span});
}

}  // namespace strata

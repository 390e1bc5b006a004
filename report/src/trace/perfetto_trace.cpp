#include <strata/report/perfetto_trace.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "trace/note_spans.h"

namespace strata {
namespace {

using What = RankTrace::What;

constexpr int kThreadsPerRank = 100;   // readers want thread ids that differ between processes
constexpr std::size_t kMaxNamed = 12;  // payloads that the arguments of a slice name

struct Window {
  std::int64_t begin_ns = INT64_MIN, end_ns = INT64_MAX;
  bool has(const RankTrace::Span& span) const noexcept {
    return span.begin_ns >= begin_ns && span.begin_ns < end_ns;
  }
};

std::string payload_text(const RankTrace& trace, int payload, std::int64_t chunk) {
  return fmt::format("{} {}", trace.payloads[static_cast<std::size_t>(payload)], chunk);
}

/// Writes the events of one rank.
class RankWriter {
 public:
  RankWriter(const RankTrace& trace, const Window& window, std::int64_t shift_ns, PerfettoTrace& into)
      : trace_(trace), window_(window), shift_ns_(shift_ns), into_(into), shown_(trace.spans.size()) {}

  void write() {
    name_process();
    name_spans();
    for (std::size_t lane = 0; lane < trace_.lanes.size(); ++lane) write_lane(lane);
    write_steps();
    for (const PayloadFlow& flow : payload_flows(trace_)) write_flow(flow);
  }

 private:
  /// The facts that notes state about a span.
  struct Shown {
    std::string name;       ///< the payload of a move
    std::string direction;  ///< the direction of a move
    std::vector<std::string> uses;
    std::size_t more_uses = 0;
  };

  int pid() const { return trace_.rank + 1; }
  int tid(std::size_t lane) const { return pid() * kThreadsPerRank + static_cast<int>(lane) + 1; }
  std::string us(std::int64_t ns) const {
    ns = std::max<std::int64_t>(0, ns + shift_ns_);
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (into_.json.back() != '[') into_.json += ',';
    into_.json += '\n';
    fmt::format_to(std::back_inserter(into_.json), format, std::forward<Args>(args)...);
  }
  void name_thread(int id, std::string_view name, int place) {
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", pid(), id,
          json_string(name));
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", pid(),
          id, place);
  }
  void name_process() {
    event(R"({{"ph":"M","pid":{},"tid":0,"name":"process_name","args":{{"name":"rank {}"}}}})", pid(),
          trace_.rank);
    event(R"({{"ph":"M","pid":{},"tid":0,"name":"process_sort_index","args":{{"sort_index":{}}}}})", pid(),
          trace_.rank);
  }

  void name_spans() {
    const detail::NoteSpans spans(trace_);
    for (const RankTrace::Note& note : trace_.notes)
      for (const std::size_t span : spans.of(note)) name_span(note, shown_[span]);
  }
  void name_span(const RankTrace::Note& note, Shown& shown) const {
    std::string payload = payload_text(trace_, note.payload, note.chunk);
    if (note.what == What::read || note.what == What::write || note.what == What::copy) {
      shown.direction = note.what == What::read                  ? "nvme to pinned"
                        : note.what == What::write               ? "pinned to nvme"
                        : note.place == RankTrace::Place::device ? "pinned to device"
                                                                 : "device to pinned";
      shown.name = std::move(payload);
    } else if (shown.uses.size() < kMaxNamed) {
      shown.uses.push_back(std::move(payload));
    } else {
      ++shown.more_uses;
    }
  }

  void write_lane(std::size_t lane) {
    const RankTrace::Lane& of = trace_.lanes[lane];
    name_thread(tid(lane), of.name, static_cast<int>(lane) + 1);
    into_.lanes.push_back({trace_.rank, of.name, 0});
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      if (trace_.spans[i].lane != static_cast<int>(lane) || !window_.has(trace_.spans[i])) continue;
      write_slice(i, of);
      ++into_.lanes.back().slices;
    }
    into_.dropped += of.dropped;
  }

  void write_slice(std::size_t i, const RankTrace::Lane& lane) {
    const RankTrace::Span& span = trace_.spans[i];
    const Shown& shown = shown_[i];
    const std::string& label = trace_.labels[static_cast<std::size_t>(span.label)];
    std::string args;
    const auto add = [&](std::string_view name, const std::string& value) {
      args += fmt::format("{}\"{}\":{}", args.empty() ? "" : ",", name, value);
    };
    const bool moves = lane.kind != RankTrace::LaneKind::work && lane.kind != RankTrace::LaneKind::other;
    if (!shown.direction.empty()) add("direction", json_string(shown.direction));
    if (moves) add("bytes", fmt::format("{}", span.arg));
    if (lane.kind == RankTrace::LaneKind::other && span.arg != 0) add("number", fmt::format("{}", span.arg));
    if (!shown.uses.empty()) {
      std::string uses = fmt::format("{}", fmt::join(shown.uses, ", "));
      if (shown.more_uses > 0) uses += fmt::format(" and {} more", shown.more_uses);
      add("payloads", json_string(uses));
    }
    event(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":{},"name":{},"args":{{{}}}}})", pid(),
          tid(static_cast<std::size_t>(span.lane)), us(span.begin_ns), duration(span), json_string(lane.name),
          json_string(shown.name.empty() ? label : shown.name), args);
  }
  // An arrow can begin only inside a slice.
  static std::string duration(const RankTrace::Span& span) {
    const std::int64_t ns = std::max<std::int64_t>(2, span.end_ns - span.begin_ns);
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }

  void write_steps() {
    const int id = pid() * kThreadsPerRank;
    name_thread(id, "steps", 0);
    into_.lanes.push_back({trace_.rank, "steps", 0});
    for (const RankTrace::Step& step : trace_.steps) {
      if (step.begin_ns < window_.begin_ns || step.begin_ns >= window_.end_ns) continue;
      event(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"steps","name":"step {}"}})", pid(), id,
            us(step.begin_ns), duration({.begin_ns = step.begin_ns, .end_ns = step.end_ns}), step.step);
      ++into_.lanes.back().slices;
    }
  }

  // Writes the part of a flow that is in the window: its kind is that of its last lane there.
  void write_flow(const PayloadFlow& flow) {
    std::vector<std::size_t> spans;
    for (const std::size_t span : flow.spans)
      if (window_.has(trace_.spans[span])) spans.push_back(span);
    if (spans.size() < 2) return;
    const PayloadFlow::Kind kind = spans.back() == flow.spans.back() ? flow.kind : PayloadFlow::Kind::keep;
    const std::string name = payload_text(trace_, flow.payload, flow.chunk);
    std::size_t n_flows = 0;
    for (const std::size_t n : into_.flows) n_flows += n;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const RankTrace::Span& span = trace_.spans[spans[i]];
      const char* const phase = i == 0 ? "s" : i + 1 == spans.size() ? "f" : "t";
      event(R"({{"ph":"{}","bp":"e","id":{},"pid":{},"tid":{},"ts":{},"cat":"{}","name":{}}})", phase,
            n_flows + 1, pid(), tid(static_cast<std::size_t>(span.lane)),
            us(span.begin_ns + std::max<std::int64_t>(1, (span.end_ns - span.begin_ns) / 2)), to_string(kind),
            json_string(name));
    }
    ++into_.flows[static_cast<std::size_t>(kind)];
    into_.arrows += spans.size() - 1;
  }

  const RankTrace& trace_;
  const Window window_;
  const std::int64_t shift_ns_;
  PerfettoTrace& into_;
  std::vector<Shown> shown_;
};

// The traced steps among those that were asked for, of a rank.
Window window_of(const RankTrace& trace, const TraceSteps& steps) {
  if (steps.all()) return {};
  Window window{INT64_MAX, INT64_MIN};
  for (const RankTrace::Step& step : trace.steps) {
    if (step.step < steps.first || step.step > steps.last) continue;
    window.begin_ns = std::min(window.begin_ns, step.begin_ns);
    window.end_ns = std::max(window.end_ns, step.end_ns);
  }
  return window;
}

Status none_of_the_steps(const RankTrace& trace, const TraceSteps& steps) {
  const std::string asked =
      steps.last == TraceSteps().last ? str(steps.first, " and later") : str(steps.first, " to ", steps.last);
  return Status::error(Code::not_found,
                       trace.steps.empty()
                           ? str("the trace has no whole step, and steps ", asked, " were asked for")
                           : str("the trace has steps ", trace.steps.front().step, " to ",
                                 trace.steps.back().step, ", and none of ", asked));
}

}  // namespace

Result<TraceSteps> parse_trace_steps(std::string_view text) {
  TraceSteps steps;
  const auto parse = [&](std::string_view part, std::int64_t& into) {
    const auto end = std::from_chars(part.data(), part.data() + part.size(), into);
    return part.empty() || (end.ec == std::errc() && end.ptr == part.data() + part.size() && into >= 0);
  };
  const std::size_t dash = text.find('-');
  const bool is_valid = dash == std::string_view::npos ? parse(text, steps.first)
                                                       : parse(text.substr(0, dash), steps.first) &&
                                                             parse(text.substr(dash + 1), steps.last);
  if (dash == std::string_view::npos && !text.empty()) steps.last = steps.first;
  if (is_valid && steps.first <= steps.last) return steps;
  return Status::error(Code::invalid,
                       str("--steps ", text, ": write a step, or the first and the last, such as 10-12"));
}

Result<PerfettoTrace> perfetto_trace(const std::vector<RankTrace>& ranks, const TraceSteps& steps) {
  PerfettoTrace out;
  std::vector<Window> windows;
  std::int64_t origin_ns = INT64_MAX;  // the calendar time of the first event that is shown
  for (const RankTrace& trace : ranks) {
    const Window window = windows.emplace_back(window_of(trace, steps));
    if (window.begin_ns > window.end_ns) return none_of_the_steps(trace, steps);
    for (const RankTrace::Span& span : trace.spans)
      if (window.has(span)) origin_ns = std::min(origin_ns, trace.begin_unix_ns + span.begin_ns);
    for (const RankTrace::Step& step : trace.steps) {
      if (step.begin_ns < window.begin_ns || step.begin_ns >= window.end_ns) continue;
      out.first_step = out.first_step == 0 ? step.step : std::min(out.first_step, step.step);
      out.last_step = std::max(out.last_step, step.step);
    }
  }
  out.json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    RankWriter(ranks[i], windows[i], ranks[i].begin_unix_ns - origin_ns, out).write();
  out.json += "\n]}\n";
  return out;
}

std::string perfetto_text(const PerfettoTrace& trace, const std::string& file) {
  std::size_t slices = 0;
  std::string lanes;
  for (const PerfettoTrace::Lane& lane : trace.lanes) {
    slices += lane.slices;
    if (lane.slices > 0)
      lanes += fmt::format("  rank {:<3} {:<16} {:>9}\n", lane.rank, lane.name, lane.slices);
  }
  std::string text =
      fmt::format("{}: steps {} to {}, {}\n{}flows    {} fetch, {} store, {} keep; {}\n", file,
                  trace.first_step, trace.last_step, plural(slices, "slice"), lanes, trace.flows[0],
                  trace.flows[1], trace.flows[2], plural(trace.arrows, "arrow"));
  if (trace.dropped > 0)
    text += fmt::format("dropped  {} older spans, for which the trace had no room: trace fewer steps\n",
                        trace.dropped);
  return text + "open it in ui.perfetto.dev or chrome://tracing\n";
}

std::string perfetto_summary_json(const PerfettoTrace& trace, const std::string& file) {
  std::map<int, std::string> by_rank;
  for (const PerfettoTrace::Lane& lane : trace.lanes) {
    std::string& of = by_rank[lane.rank];
    of += fmt::format("{}{}: {}", of.empty() ? "" : ", ", json_string(lane.name), lane.slices);
  }
  std::string slices;
  for (const auto& [rank, lanes] : by_rank)
    slices += fmt::format("{}\"rank {}\": {{{}}}", slices.empty() ? "" : ", ", rank, lanes);
  return fmt::format(
      "{{\"file\": {}, \"first_step\": {}, \"last_step\": {}, \"slices\": {{{}}}, \"flows\": {{\"fetch\": "
      "{}, "
      "\"store\": {}, \"keep\": {}}}, \"arrows\": {}, \"dropped\": {}}}\n",
      json_string(file), trace.first_step, trace.last_step, slices, trace.flows[0], trace.flows[1],
      trace.flows[2], trace.arrows, trace.dropped);
}

}  // namespace strata

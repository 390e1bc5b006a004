#include "trace/read_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kTraceLimit = std::uint64_t{1} << 30;

/// Numbers names in the order in which they appear.
class Names {
 public:
  explicit Names(std::vector<std::string>& into) : into_(into) {}
  int operator()(const std::string& name) {
    const auto [at, is_new] = known_.emplace(name, static_cast<int>(into_.size()));
    if (is_new) into_.push_back(name);
    return at->second;
  }

 private:
  std::vector<std::string>& into_;
  std::map<std::string, int> known_;
};

RankTrace::LaneKind kind_of_lane(std::string_view name) {
  using enum RankTrace::LaneKind;
  if (name == "compute" || name == "cpu" || name == "collective") return work;
  if (name == "h2d" || name == "d2h") return copy;
  if (name.starts_with("nvme read")) return read;
  return name.starts_with("nvme write") ? write : other;
}

// Files have microseconds with three decimals.
std::int64_t ns_of(const Json& us) { return std::llround(us.get<double>() * 1000); }

template <class Enum, std::size_t N>
Enum one_of(const std::array<std::string_view, N>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  // The type by which the caller knows that the file is damaged.
  if (found == names.end()) throw Json::other_error::create(501, "there are no notes of " + name, nullptr);
  return static_cast<Enum>(found - names.begin());
}

RankTrace::Note note_of(const Json& note, Names& payload_of) {
  constexpr std::array<std::string_view, 10> kWhat = {"plan",   "read",      "write",  "copy", "use",
                                                      "update", "overwrite", "absent", "give", "take"};
  constexpr std::array<std::string_view, 3> kPlaces = {"device", "pinned", "nvme"};
  RankTrace::Note read;
  read.what = one_of<RankTrace::What>(kWhat, note.at(0).get<std::string>());
  read.at_ns = ns_of(note.at(7));
  if (read.what == RankTrace::What::plan) return read;
  read.payload = payload_of(note.at(1).get<std::string>());
  read.chunk = note.at(2).get<std::int64_t>();
  read.place = one_of<RankTrace::Place>(kPlaces, note.at(3).get<std::string>());
  read.queue = note.at(4).get<std::int32_t>();
  read.after = note.at(5).get<std::uint64_t>();
  read.last = note.at(6).get<std::uint64_t>();
  return read;
}

void read_events(const Json& events, RankTrace& into) {
  std::vector<std::string> names;
  Names lane_of(names), label_of(into.labels);
  std::map<int, int> lanes;  // keyed by thread id
  for (const Json& event : events) {
    const std::string kind = event.value("ph", "");
    const int thread = event.value("tid", 0);
    if (kind == "M" && event.value("name", "") == "thread_name")
      lanes[thread] = lane_of(event.at("args").at("name").get<std::string>());
    if (kind != "X" || !lanes.contains(thread)) continue;
    const Json& args = event.at("args");
    const std::int64_t begin_ns = ns_of(event.at("ts"));
    into.spans.push_back({lanes[thread], label_of(event.value("name", "")), begin_ns,
                          begin_ns + ns_of(event.at("dur")), args.value("arg", std::int64_t{0}),
                          args.value("queue", std::int32_t{-1}), args.value("work", std::uint64_t{0})});
  }
  for (const std::string& name : names) into.lanes.push_back({name, kind_of_lane(name), 0});
  std::stable_sort(into.spans.begin(), into.spans.end(), [](const auto& a, const auto& b) {
    return a.lane != b.lane ? a.lane < b.lane : a.begin_ns < b.begin_ns;
  });
}

// A step begins with the first micro-batch that is queued after the one before, and ends with its commit;
// what comes before the next step belongs to it, too.
std::vector<RankTrace::Step> find_steps(const RankTrace& trace) {
  std::int64_t kept_ns = 0;
  std::vector<bool> seen(trace.lanes.size(), false);
  for (const RankTrace::Span& span : trace.spans) {
    const auto lane = static_cast<std::size_t>(span.lane);
    if (!seen[lane] && trace.lanes[lane].dropped > 0) kept_ns = std::max(kept_ns, span.begin_ns);
    seen[lane] = true;
  }
  std::vector<RankTrace::Step> steps;
  std::int64_t begin_ns = -1;
  for (const RankTrace::Span& span : trace.spans) {
    if (trace.lanes[static_cast<std::size_t>(span.lane)].name != "engine") continue;
    const std::string& label = trace.labels[static_cast<std::size_t>(span.label)];
    if (label == "queue micro-batch" && begin_ns < 0) {
      begin_ns = span.begin_ns;
      if (!steps.empty()) steps.back().end_ns = begin_ns;
    }
    if (label != "commit" || begin_ns < 0) continue;
    steps.push_back({span.arg, begin_ns, span.end_ns, begin_ns >= kept_ns});
    begin_ns = -1;
  }
  return steps;
}

void read_file(const Json& root, RankTrace& into) {
  read_events(root.at("traceEvents"), into);
  const Json about = root.value("otherData", Json::object());
  into.begin_unix_ns = about.value("begin_unix_ns", std::int64_t{0});
  const Json dropped = about.value("dropped_events", Json::object());
  for (RankTrace::Lane& lane : into.lanes) lane.dropped = dropped.value(lane.name, std::uint64_t{0});
  Names payload_of(into.payloads);
  if (root.contains("notes"))
    for (const Json& note : root["notes"]) into.notes.push_back(note_of(note, payload_of));
  into.steps = find_steps(into);
}

// The rank that a file of the folder is of; -1: it is none.
int rank_of_file(std::string_view name) {
  constexpr std::string_view kPrefix = "trace-rank-", kSuffix = ".json";
  if (name == "trace.json") return 0;
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return -1;
  int rank = -1;
  const char* const end = name.data() + name.size() - kSuffix.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, rank);
  return parsed.ec == std::errc() && parsed.ptr == end ? rank : -1;
}

}  // namespace

namespace detail {

Result<RankTrace> read_rank_trace(Io& io, const std::string& path, int rank) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(io, path, kTraceLimit));
  JsonTree<Json> tree;
  if (const std::string problem = tree.read(text); !problem.empty())
    return Status::error(Code::corrupt, str(path, ": ", problem));
  RankTrace trace;
  trace.rank = rank;
  try {
    read_file(tree.root, trace);
  } catch (const Json::exception& error) {
    return Status::error(Code::corrupt, str(path, ": ", json_problem(error.what())));
  }
  return trace;
}

RunRecord::Timeline timeline_of(const RankTrace& trace) {
  constexpr std::size_t kMaxSpans = 12000;
  RunRecord::Timeline timeline;
  for (const RankTrace::Lane& lane : trace.lanes) timeline.lanes.push_back(lane.name);
  timeline.labels = trace.labels;
  std::int64_t first_ns = INT64_MAX;
  std::vector<RankTrace::Span> spans = trace.spans;
  if (spans.size() > kMaxSpans) {
    timeline.left_out = spans.size() - kMaxSpans;
    std::stable_sort(spans.begin(), spans.end(),
                     [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
    spans.erase(spans.begin(), spans.end() - static_cast<std::ptrdiff_t>(kMaxSpans));
    std::stable_sort(spans.begin(), spans.end(),
                     [](const auto& a, const auto& b) { return a.lane < b.lane; });
  }
  for (const RankTrace::Span& span : spans) first_ns = std::min(first_ns, span.begin_ns);
  for (const RankTrace::Span& span : spans)
    timeline.spans.push_back({span.lane, span.label, static_cast<double>(span.begin_ns - first_ns) * 1e-3,
                              static_cast<double>(span.end_ns - span.begin_ns) * 1e-3, span.arg});
  return timeline;
}

}  // namespace detail

Result<std::vector<RankTrace>> read_run_trace(Io& io, const std::string& folder) {
  if (!io.exists(folder + "/config.resolved.toml"))
    return Status::error(Code::not_found,
                         str(folder, " contains no run: there is no ", folder, "/config.resolved.toml"));
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(folder));
  std::vector<RankTrace> ranks;
  for (const std::string& name : names) {
    const int rank = rank_of_file(name);
    if (rank < 0) continue;
    STRATA_TRY_ASSIGN(RankTrace trace, detail::read_rank_trace(io, str(folder, "/", name), rank));
    ranks.push_back(std::move(trace));
  }
  if (ranks.empty())
    return Status::error(Code::not_found,
                         str(folder,
                             " has no trace: train with log.trace=true, or with the steps to trace, such "
                             "as log.trace=10-12"));
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return ranks;
}

}  // namespace strata

#include "read_trace.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kTraceLimit = std::uint64_t{1} << 30;
constexpr std::size_t kMaxSpans = 12000;

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

void read_events(const Json& events, RunRecord::Timeline& into) {
  Names lane_of(into.lanes), label_of(into.labels);
  std::map<int, int> lanes;  // by thread id
  for (const Json& event : events) {
    const std::string kind = event.value("ph", "");
    const int thread = event.value("tid", 0);
    if (kind == "M" && event.value("name", "") == "thread_name")
      lanes[thread] = lane_of(event["args"]["name"].get<std::string>());
    if (kind != "X" || !lanes.contains(thread)) continue;
    into.spans.push_back({lanes[thread], label_of(event.value("name", "")), event.value("ts", 0.0),
                          event.value("dur", 0.0), event["args"].value("arg", std::int64_t{0})});
  }
}

}  // namespace

Result<RunRecord::Timeline> read_trace(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(io, path, kTraceLimit));
  JsonTree<Json> tree;
  if (const std::string problem = tree.read(text); !problem.empty())
    return Status::error(Code::corrupt, str(path, ": ", problem));
  RunRecord::Timeline timeline;
  try {
    read_events(tree.root.at("traceEvents"), timeline);
  } catch (const Json::exception& error) {
    return Status::error(Code::corrupt, str(path, ": ", error.what()));
  }
  std::vector<RunRecord::Timeline::Span>& spans = timeline.spans;
  if (spans.size() > kMaxSpans) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const auto& a, const auto& b) { return a.begin_us < b.begin_us; });
    timeline.left_out = spans.size() - kMaxSpans;
    spans.erase(spans.begin(), spans.end() - static_cast<std::ptrdiff_t>(kMaxSpans));
  }
  double first = spans.empty() ? 0 : spans.front().begin_us;
  for (const auto& span : spans) first = std::min(first, span.begin_us);
  for (auto& span : spans) span.begin_us -= first;
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return a.lane != b.lane ? a.lane < b.lane : a.begin_us < b.begin_us;
  });
  return timeline;
}

}  // namespace strata::detail

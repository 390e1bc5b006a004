#include "run_json.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>

namespace strata::detail {
namespace {

// Nine digits are more than metrics.jsonl has of a figure, and exact for its counts of bytes up to 10^15.
void append_number(std::string& out, double value) {
  if (!std::isfinite(value))
    out += "null";
  else if (value == std::floor(value) && std::abs(value) < 1e15)
    fmt::format_to(std::back_inserter(out), "{:.0f}", value);
  else
    fmt::format_to(std::back_inserter(out), "{:.9g}", value);
}

template <class T, class Append>
void append_array(std::string& out, const std::vector<T>& values, const Append& append) {
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append(values[i]);
  }
  out += ']';
}

/// How often each figure is repeated before another follows: [figure, times, ...].
std::vector<double> runs_of(const std::vector<double>& values) {
  std::vector<double> runs;
  for (const double value : values) {
    if (!runs.empty() && runs[runs.size() - 2] == value)
      ++runs.back();
    else
      runs.insert(runs.end(), {value, 1});
  }
  return runs;
}

/// A series as what is shortest: one figure that all steps have, figures with how often they are repeated, or
/// the figure of each step.
void append_series(std::string& out, const std::vector<double>& values) {
  const auto number = [&](double value) { append_number(out, value); };
  const std::vector<double> runs = runs_of(values);
  if (values.size() > 1 && runs.size() == 2) return append_number(out, values.front());
  if (runs.size() >= values.size()) return append_array(out, values, number);
  out += "{\"repeat\":";
  append_array(out, runs, number);
  out += '}';
}

void append_timeline(std::string& out, const RunRecord::Timeline& timeline) {
  const auto name = [&](const std::string& text) { append_json_string(out, text); };
  out += "{\"lanes\":";
  append_array(out, timeline.lanes, name);
  out += ",\"labels\":";
  append_array(out, timeline.labels, name);
  out += ",\"spans\":";
  append_array(out, timeline.spans, [&](const RunRecord::Timeline::Span& span) {
    fmt::format_to(std::back_inserter(out), "[{},{},{:.3f},{:.3f}]", span.lane, span.label, span.begin_us,
                   span.us);
  });
  out += '}';
}

void append_playback(std::string& out, const RunRecord::Playback& playback) {
  if (playback.us <= 0) {
    out += "null";
    return;
  }
  out += fmt::format("{{\"step\":{},\"us\":{:.3f},\"rows\":", playback.step, playback.us);
  append_array(out, playback.begin, [&](const RunRecord::Homes& row) {
    out += '[';
    append_json_string(out, row.payload);
    out += ',';
    append_json_string(out, row.tiers);
    out += ']';
  });
  out += ",\"changes\":";
  append_array(out, playback.changes, [&](const RunRecord::Playback::Change& change) {
    fmt::format_to(std::back_inserter(out), "[{:.1f},{},{},\"{}\"]", change.us, change.row, change.chunk,
                   change.letter);
  });
  out += '}';
}

void append_run(std::string& out, const RunRecord& run) {
  out += "{\"name\":";
  append_json_string(out, run.name);
  out += ",\"steps\":";
  append_array(out, run.steps, [&](std::int64_t step) { out += fmt::format("{}", step); });
  out += ",\"series\":{";
  bool first = true;
  for (const RunRecord::Series& series : run.series) {
    if (series.name.ends_with("_bits")) continue;
    if (!std::exchange(first, false)) out += ',';
    append_json_string(out, series.name);
    out += ':';
    append_series(out, series.values);
  }
  out += "},\"validations\":";
  append_array(out, run.validations, [&](const RunRecord::Validation& v) {
    out += fmt::format("[{},", v.step);
    append_number(out, v.loss);
    out += ']';
  });
  out += ",\"timeline\":";
  append_timeline(out, run.timeline);
  out += ",\"playback\":";
  append_playback(out, run.playback);
  out += '}';
}

}  // namespace

std::string runs_json(const std::vector<RunRecord>& runs) {
  std::string out = "{\"runs\":";
  append_array(out, runs, [&](const RunRecord& run) { append_run(out, run); });
  out += '}';
  // In a page no text may end its element, or begin a comment in it. JSON has this character in strings
  // alone.
  for (std::size_t at = out.find('<'); at != std::string::npos; at = out.find('<', at + 6))
    out.replace(at, 1, "\\u003c");
  return out;
}

}  // namespace strata::detail

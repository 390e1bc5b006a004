#include <charconv>
#include <cmath>
#include <span>

#include <nlohmann/json.hpp>

#include <strata/report/run_record.h>
#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/config/config_schema.h>
#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/str.h>

#include "trace/payload_playback.h"
#include "trace/read_trace.h"

namespace strata {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kTextLimit = std::uint64_t{1} << 32;

/// Appends the figures of lines to their series, in the order in which they first appear. Of very many steps
/// it keeps every second one, every fourth, and so on, and the last.
class SeriesBuilder {
 public:
  explicit SeriesBuilder(RunRecord& into) : into_(into) {}

  /// Whether the next step is kept; call it once for each.
  bool is_next_kept() {
    if (into_.steps.size() == kMaxSteps) halve();
    return seen_++ % stride_ == 0;
  }
  void add_step(const Json& line) {
    into_.steps.push_back(line.at("step").get<std::int64_t>());
    for (const auto& [name, value] : line.items()) add(name, value);
    for (RunRecord::Series& series : into_.series) series.values.resize(into_.steps.size(), kNoValue64);
  }

 private:
  static constexpr std::size_t kMaxSteps = 20000;

  template <class T>
  static void keep_every_second(std::vector<T>& values) {
    for (std::size_t i = 0; 2 * i < values.size(); ++i) values[i] = values[2 * i];
    values.resize((values.size() + 1) / 2);
  }
  void halve() {
    keep_every_second(into_.steps);
    for (RunRecord::Series& series : into_.series) keep_every_second(series.values);
    stride_ *= 2;
  }
  void add(const std::string& name, const Json& value) {
    if (name == "step") return;
    if (value.is_object()) {
      for (const auto& [inner, of_inner] : value.items()) add(name + "." + inner, of_inner);
    } else if (value.is_number()) {
      put(name, value.get<double>());
    } else if (value.is_boolean()) {
      put(name, value.get<bool>() ? 1 : 0);
    } else if (value.is_string()) {  // bits
      const auto& text = value.get_ref<const std::string&>();
      std::uint64_t bits = 0;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
      if (end.ec == std::errc() && end.ptr == text.data() + text.size() && text.size() <= 8)
        put(name, static_cast<double>(bits));
    }
  }
  void put(const std::string& name, double value) {
    const auto [at, is_new] = index_.emplace(name, into_.series.size());
    if (is_new) into_.series.push_back({name, {}});
    std::vector<double>& values = into_.series[at->second].values;
    values.resize(into_.steps.size() - 1, kNoValue64);
    values.push_back(value);
  }

  RunRecord& into_;
  std::map<std::string, std::size_t> index_;
  std::size_t seen_ = 0, stride_ = 1;
};

/// Reads metrics.jsonl block by block, so that a long run takes no more memory than a short one.
class MetricsReader {
 public:
  explicit MetricsReader(RunRecord& into) : into_(into), steps_(into) {}

  /// From `offset` on; in the middle of the file, from the next line on.
  Status read(File& file, std::uint64_t offset) {
    constexpr std::size_t kBlock = 1 << 20;
    std::string text;
    for (bool skips = offset > 0;;) {
      const std::size_t kept = text.size();
      text.resize(kept + kBlock);
      STRATA_TRY_ASSIGN(const std::size_t n,
                        file.read_at(offset, std::as_writable_bytes(std::span(text).subspan(kept))));
      text.resize(kept + n);
      offset += n;
      std::size_t at = skips ? std::min(text.find('\n'), text.size() - 1) + 1 : 0;
      skips = skips && at == text.size() && n > 0;
      for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
        STRATA_TRY(line(std::string_view(text).substr(at, end - at)));
      text.erase(0, at);
      if (n == 0) break;  // the last line may be in the middle of being written
    }
    return last_.empty() ? Status::ok() : parse(last_, true);
  }

 private:
  Status line(std::string_view text) {
    ++number_;
    if (text.find("\"val_loss\"") != std::string_view::npos) return parse(text, false);
    const bool kept = steps_.is_next_kept();
    last_ = kept ? std::string() : std::string(text);
    return kept ? parse(text, true) : Status::ok();
  }
  static double number(const Json& root, const char* name) {
    const auto found = root.find(name);
    return found != root.end() && found->is_number() ? found->get<double>() : kNoValue64;
  }
  Status parse(std::string_view text, bool is_step) {
    JsonTree<Json> line;
    const std::string problem = line.read(text);
    const Json& root = line.root;
    if (!problem.empty() || !root.is_object() || !root.contains("step") || !root["step"].is_number_integer())
      return Status::error(Code::corrupt, str("metrics.jsonl:", number_, ": ",
                                              problem.empty() ? "the line has no step" : problem));
    if (is_step)
      steps_.add_step(root);
    else
      into_.validations.push_back(
          {root["step"].get<std::int64_t>(), number(root, "val_loss"), number(root, "val_accuracy")});
    return {};
  }

  RunRecord& into_;
  SeriesBuilder steps_;
  std::string last_;  // step that is not kept
  std::int64_t number_ = 0;
};

// Where a comment begins: behind the value, which may be a string with '#'.
std::size_t comment_of(std::string_view line) {
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && quoted)
      ++i;
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == '#' && !quoted)
      return i;
  }
  return std::string_view::npos;
}
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// As strata wrote it: sections, and a line per key, whose comment is its origin.
void read_settings(const std::string& text, RunRecord& into) {
  std::string section;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.starts_with('[') && line.find(']') != std::string_view::npos) {
      section = line.substr(1, line.find(']') - 1);
      continue;
    }
    const std::size_t equals = line.find('='), comment = comment_of(line);
    if (equals == std::string_view::npos || equals > comment) continue;
    const std::string_view value =
        line.substr(equals + 1, comment == std::string_view::npos ? comment : comment - equals - 1);
    into.settings.push_back(
        {section + "." + std::string(trimmed(line.substr(0, equals))), std::string(trimmed(value)),
         comment == std::string_view::npos ? std::string() : std::string(trimmed(line.substr(comment + 1)))});
  }
}

// Budgets without a limit are null.
std::uint64_t bytes_of(const Json& object, const char* name) {
  if (!object.contains(name)) return 0;
  return object[name].is_null() ? kUnlimitedBytes : object[name].get<std::uint64_t>();
}

std::string fact_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void read_plan(const Json& plan, RunRecord& into) {
  for (const auto& [name, value] : plan.items())
    if (value.is_primitive()) into.facts[name] = fact_text(value);
  for (const char* name : {"device", "pinned", "nvme"}) {
    const Json tier = plan.value("tiers", Json::object()).value(name, Json::object());
    into.tiers.push_back({name,
                          bytes_of(tier, "budget_bytes"),
                          bytes_of(tier, "planned_bytes"),
                          bytes_of(tier, "home_bytes"),
                          {}});
  }
  const Json homes = plan.value("chunk_homes", Json::object());
  for (const auto& [payload, tiers] : homes.items())
    if (tiers.is_string()) into.homes.push_back({payload, tiers.get<std::string>()});
}

void read_forecast(const Json& forecast, RunRecord& into) {
  if (!forecast.is_object()) return;
  into.expected_step_s = forecast.value("step_s", 0.0);
  into.measured_step_s = forecast.value("measured_step_s", 0.0);
  const Json lanes = forecast.value("lanes", Json::object());
  for (RunRecord::Lane& lane : into.lanes)
    if (lanes.contains(lane.name)) {
      lane.expected_s = lanes[lane.name].value("expected_s", 0.0);
      const Json& measured = lanes[lane.name]["measured_s"];
      lane.measured_s = measured.is_number() ? measured.get<double>() : 0;
    }
}

void read_summary(const Json& summary, RunRecord& into) {
  into.has_ended = true;
  for (const auto& [name, value] : summary.items())
    if (value.is_primitive()) into.facts[name] = fact_text(value);
  for (RunRecord::TierUse& tier : into.tiers)
    if (const Json peaks = summary.value("peak_bytes", Json::object()); peaks.contains(tier.name))
      tier.peak = peaks[tier.name].get<std::uint64_t>();
  const Json lanes = summary.value("lanes", Json::object());
  for (const auto& [name, lane] : lanes.items())
    into.lanes.push_back({name, lane.value("busy_s", 0.0), lane.value("bytes", std::uint64_t{0})});
  read_forecast(summary.value("forecast", Json()), into);
  // The model that the run ends with is measured on all of the validation data, behind the last step.
  const auto number = [&](const char* name) {
    const auto found = summary.find(name);
    return found != summary.end() && found->is_number() ? found->get<double>() : kNoValue64;
  };
  const double loss = number("val_loss");
  const auto step = summary.value("steps", std::int64_t{0});
  if (std::isfinite(loss) && (into.validations.empty() || into.validations.back().step < step))
    into.validations.push_back({step, loss, number("val_accuracy")});
}

/// Reads files of the folder that may be missing.
class Folder {
 public:
  Folder(Io& io, const std::string& path) : io_(io), path_(path) {}
  bool has(const char* name) const { return io_.exists(path_ + "/" + name); }
  /// Empty if there is none.
  Result<std::string> text(const char* name) const {
    if (!has(name)) return std::string();
    return read_text(io_, path_ + "/" + name, kTextLimit);
  }
  /// Gives the file's JSON to `take`, which may throw for values of other types.
  template <class Take>
  Status json(const char* name, const Take& take) const {
    STRATA_TRY_ASSIGN(const std::string all, text(name));
    if (all.empty()) return {};
    JsonTree<Json> tree;
    if (const std::string problem = tree.read(all); !problem.empty())
      return Status::error(Code::corrupt, str(path_, "/", name, ": ", problem));
    try {
      take(tree.root);
    } catch (const Json::exception& error) {
      return Status::error(Code::corrupt, str(path_, "/", name, ": ", json_problem(error.what())));
    }
    return {};
  }

 private:
  Io& io_;
  const std::string& path_;
};

std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

const std::vector<double>* RunRecord::find(std::string_view series_name) const noexcept {
  for (const Series& each : series)
    if (each.name == series_name) return &each.values;
  return nullptr;
}

double RunRecord::mean(std::string_view series_name) const noexcept {
  const std::vector<double>* const values = find(series_name);
  double sum = 0, n = 0;
  if (values != nullptr)
    for (const double value : *values)
      if (std::isfinite(value)) {
        sum += value;
        ++n;
      }
  return n > 0 ? sum / n : kNoValue64;
}

namespace {

constexpr std::uint64_t kRecentBytes = 192 << 10;  // metrics that read_recent_steps() reads

Result<RunRecord> read_run(Io& io, const std::string& path, bool whole) {
  const Folder folder(io, path);
  if (!folder.has("config.resolved.toml"))
    return Status::error(Code::not_found,
                         str(path, " contains no run: there is no ", path, "/config.resolved.toml"));
  RunRecord run;
  run.name = last_part(path);
  STRATA_TRY_ASSIGN(const std::string settings, folder.text("config.resolved.toml"));
  read_settings(settings, run);
  if (folder.has("metrics.jsonl")) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<File> metrics, io.open(path + "/metrics.jsonl", OpenMode::read));
    STRATA_TRY_ASSIGN(const std::uint64_t size, metrics->size());
    const std::uint64_t begin = whole || size <= kRecentBytes ? 0 : size - kRecentBytes;
    STRATA_TRY(MetricsReader(run).read(*metrics, begin).annotate(path));
  }
  STRATA_TRY_ASSIGN(const std::string samples, folder.text("samples.txt"));
  run.samples = read_samples(samples);
  STRATA_TRY(folder.json("plan.json", [&](const Json& plan) { read_plan(plan, run); }));
  STRATA_TRY(folder.json("summary.json", [&](const Json& summary) { read_summary(summary, run); }));
  if (whole && folder.has("trace.json")) {
    STRATA_TRY_ASSIGN(const RankTrace trace, detail::read_rank_trace(io, path + "/trace.json", 0));
    run.timeline = detail::timeline_of(trace);
    run.playback = detail::payload_playback(trace, run.homes);
  }
  return run;
}

}  // namespace

Result<RunRecord> read_run_record(Io& io, const std::string& folder) { return read_run(io, folder, true); }
Result<RunRecord> read_recent_steps(Io& io, const std::string& folder) { return read_run(io, folder, false); }

}  // namespace strata

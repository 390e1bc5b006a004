#include "outputs/metrics_sinks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include <strata/config/train_config.h>
#include <strata/report/report_page.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/config/run_layout.h>
#include <strata/infer/pair_figures.h>

namespace strata::detail {
namespace {

double wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr std::int64_t kPrometheusNs = 1'000'000'000;
constexpr int kLeastNorm = -80, kMostNorm = 40;  // ends of intervals of norms, in half powers of two
// The time between two reports is at least so many times their cost.
constexpr std::int64_t kReportShare = 400;

// The tags are indexed by StallCause and by Tier.
constexpr std::array<std::string_view, kStallCauses> kWaitTags = {
    "waits/h2d",        "waits/d2h",  "waits/optimizer", "waits/nvme",
    "waits/collective", "waits/data", "waits/host"};
constexpr std::array<std::string_view, kTiers> kUsedTags = {"memory/device", "memory/pinned", "memory/nvme"};

std::string run_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

MetricsSinks::MetricsSinks(const TrainConfig& config, RunFolder& folder, Io& io, Observer& observer)
    : config_(config), folder_(folder), io_(io), observer_(observer) {
  has_prometheus_ = !config.log.prometheus.empty();
  has_report_ = std::isfinite(config.log.report_every_s);
  report_ns_ = steady_ns();
  if (config.log.tensorboard) {
    const std::string dir = folder.file(kEventsFolder);
    const Status made = io.make_dirs(dir);
    auto events =
        made.is_ok()
            ? EventFile::create(io, fmt::format("{}/{}{:.0f}{}", dir, kEventsPrefix, wall_s(), kEventsSuffix),
                                wall_s())
            : Result<std::unique_ptr<EventFile>>(made);
    if (events.has_value())
      events_ = *std::move(events);
    else
      stop("log.tensorboard", events.status());
  }
  if (config.log.command.empty()) return;
  auto pipe = MetricsPipe::start(config.log.command);
  if (pipe.has_value())
    pipe_ = *std::move(pipe);
  else
    stop("log.command", pipe.status());
}

MetricsSinks::~MetricsSinks() { folder_.set_listener(nullptr); }

void MetricsSinks::stop(const char* what, const Status& why) {
  observer_.on_warning(str(what, " stops, training goes on: ", why.message()));
}

void MetricsSinks::send(std::string_view line) {
  if (pipe_ == nullptr) return;
  if (const Status sent = pipe_->send(line); !sent.is_ok()) {
    pipe_.reset();
    stop("log.command", sent);
  }
}

void MetricsSinks::write_event(std::int64_t step) {
  if (const Status written = events_->write(step, wall_s()); !written.is_ok()) {
    events_.reset();
    stop("log.tensorboard", written);
  }
}

// From the empty interval before the first value on, up to the last value: most of the others are always
// empty.
void MetricsSinks::write_histogram(std::string_view tag) {
  const auto is_counted = [](double count) { return count > 0; };
  const auto first = std::find_if(counts_.begin() + 1, counts_.end(), is_counted);
  if (first == counts_.end()) return;
  const auto begin = static_cast<std::size_t>(first - counts_.begin()) - 1;
  const auto end =
      static_cast<std::size_t>(counts_.rend() - std::find_if(counts_.rbegin(), counts_.rend(), is_counted));
  events_->histogram(tag, std::span<const double>(limits_).subspan(begin, end - begin),
                     std::span<const double>(counts_).subspan(begin, end - begin));
}

// The first histogram has a bar for each layer: the bar of layer 12 is between 11.5 and 12.5 and as high as
// its norm; what is before and behind the layers has a bar on either side. In the second, a bar is the number
// of tensors whose norms are in its interval.
void MetricsSinks::add_histograms(const MetricsLine& line) {
  if (line.layer_norms.empty()) return;
  const auto finite = [](double norm) { return std::isfinite(norm) ? norm : 0; };
  limits_.assign(1, -1.5);
  counts_.assign(1, 0);
  for (const double norm : line.layer_norms) {
    limits_.push_back(limits_.back() + 1);
    counts_.push_back(finite(norm));
  }
  write_histogram("gradient/norm_by_layer");
  limits_.assign(1, 0);
  for (int half_power = kLeastNorm; half_power <= kMostNorm; ++half_power)
    limits_.push_back(std::exp2(0.5 * half_power));
  counts_.assign(limits_.size(), 0);
  for (const double norm : line.tensor_norms) {
    const auto at = std::lower_bound(limits_.begin() + 1, limits_.end() - 1, finite(norm));
    ++counts_[static_cast<std::size_t>(at - limits_.begin())];
  }
  write_histogram("gradient/tensor_norms");
}

void MetricsSinks::add_pairs(const PairFigures& pairs, std::string_view where) {
  if (pairs.n <= 0) return;
  for (const NamedFigure& figure : named_figures(pairs))
    events_->scalar(str(where, figure.name), figure.value);
}

void MetricsSinks::on_step(const MetricsLine& line) {
  last_ = line;
  last_.tensor_norms = last_.layer_norms = {};  // which are gone when it is written
  if (events_ != nullptr) {
    const StepReport& r = line.report;
    events_->scalar("train/loss", r.loss);
    events_->scalar("train/grad_norm", r.grad_norm);
    events_->scalar("train/lr", line.lr);
    events_->scalar("speed/tokens_per_s", line.tokens_per_s);
    events_->scalar("speed/step_s", r.seconds);
    events_->scalar("speed/compute_s", static_cast<double>(r.times.computing_ns) * 1e-9);
    for (std::size_t i = 0; i < kStallCauses; ++i)
      events_->scalar(kWaitTags[i], static_cast<double>(r.times.stalled_ns[i]) * 1e-9);
    for (std::size_t t = 0; t < kTiers; ++t) events_->scalar(kUsedTags[t], static_cast<double>(line.used[t]));
    const auto figures = named_figures(line.policy);
    for (std::size_t i = 0; i < count_figures(line.policy); ++i)
      events_->scalar(str("policy/", figures[i].name), figures[i].value);
    add_pairs(line.pairs, "pairs/");
    for (const NamedFigure& figure : named_figures(line.experts))
      if (line.experts.n > 0 && *figure.name != '\0')
        events_->scalar(str("experts/", figure.name), figure.value);
    add_histograms(line);
    write_event(line.step);
  }
  if (pipe_ != nullptr) {
    std::array<char, kMetricsLineBytes> buffer;
    send(metrics_json(line, buffer));
  }
  if (has_prometheus_ && steady_ns() - prometheus_ns_ >= kPrometheusNs) write_prometheus();
  if (has_report_ && static_cast<double>(steady_ns() - report_ns_) >= 1e9 * config_.log.report_every_s &&
      steady_ns() - report_ns_ >= kReportShare * report_cost_ns_)
    write_report();
}

void MetricsSinks::on_validation(const Validation& validation) {
  val_loss_ = validation.loss;
  if (events_ != nullptr) {
    events_->scalar("validation/loss", validation.loss);
    add_pairs(validation.pairs, "validation/");
    write_event(validation.step);
  }
  send(fmt::format("{{\"step\": {}, \"val_loss\": {:.6f}}}\n", validation.step, validation.loss));
}

void MetricsSinks::on_sample(std::int64_t step, std::string_view text) {
  if (events_ != nullptr) {
    events_->text("samples", text);
    write_event(step);
  }
  if (pipe_ != nullptr) send(str("{\"step\": ", step, ", \"sample\": ", json_string(text), "}\n"));
}

// The text format of Prometheus. Renamed into place, so that node_exporter never sees half of it; it is not
// synced, since it is worth nothing after a crash.
void MetricsSinks::write_prometheus() {
  prometheus_ns_ = steady_ns();
  std::string labels = json_string(run_name(folder_.path()));
  labels = "{run=" + labels + "}";
  std::string text;
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    text += fmt::format("# HELP strata_{0} {1}\n# TYPE strata_{0} gauge\nstrata_{0}{2} {3:.9g}\n", name, help,
                        labels, value);
  };
  gauge("step", "Last step that has ended.", static_cast<double>(last_.step));
  gauge("steps", "Steps of the run.", static_cast<double>(config_.train.steps));
  gauge("loss", "Training loss of that step, in nats per token.", last_.report.loss);
  if (val_loss_ > 0) gauge("validation_loss", "Last validation loss, in nats per token.", val_loss_);
  gauge("grad_norm", "Norm of its gradient.", last_.report.grad_norm);
  gauge("tokens_per_second", "Tokens that it trained per second.", last_.tokens_per_s);
  gauge("step_seconds", "Its duration.", last_.report.seconds);
  if (last_.policy.n > 0)
    gauge("reward", "Mean reward of the answers that it trained on.", last_.policy.reward);
  text += "# HELP strata_used_bytes Memory in use by tier.\n# TYPE strata_used_bytes gauge\n";
  for (std::size_t t = 0; t < kTiers; ++t)
    text += fmt::format("strata_used_bytes{{run={},tier=\"{}\"}} {}\n", json_string(run_name(folder_.path())),
                        to_string(static_cast<Tier>(t)), last_.used[t]);
  text += "# HELP strata_wait_seconds Waits of that step by cause.\n# TYPE strata_wait_seconds gauge\n";
  for (std::size_t i = 0; i < kStallCauses; ++i)
    text += fmt::format("strata_wait_seconds{{run={},cause=\"{}\"}} {:.9g}\n",
                        json_string(run_name(folder_.path())), to_string(static_cast<StallCause>(i)),
                        static_cast<double>(last_.report.times.stalled_ns[i]) * 1e-9);
  const std::string part = config_.log.prometheus + ".part";
  const auto write = [&]() -> Status {
    STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io_.open(part, OpenMode::truncate));
    STRATA_TRY(write_all(*file, 0, std::as_bytes(std::span(text))));
    return io_.rename(part, config_.log.prometheus);
  };
  if (const Status written = write(); !written.is_ok()) {
    has_prometheus_ = false;
    stop("log.prometheus", written);
  }
}

void MetricsSinks::write_report() {
  const std::int64_t begin = steady_ns();
  const auto write = [&]() -> Status {
    STRATA_TRY_ASSIGN(RunRecord run, read_run_record(io_, folder_.path()));
    std::vector<RunRecord> runs;
    runs.push_back(std::move(run));
    return write_text_atomically(io_, folder_.file("report.html"), report_html(runs));
  };
  if (const Status written = write(); !written.is_ok()) {
    has_report_ = false;
    stop("log.report_every", written);
  }
  report_ns_ = steady_ns();
  report_cost_ns_ = report_ns_ - begin;
}

void MetricsSinks::finish() {
  if (has_prometheus_ && last_.step > 0) write_prometheus();
  if (has_report_) write_report();
  if (pipe_ == nullptr) return;
  if (pipe_->dropped() > 0)
    observer_.on_warning(str("log.command did not read ", pipe_->dropped(),
                             " lines in time, which were dropped; metrics.jsonl has all"));
  if (const Status ended = pipe_->finish(); !ended.is_ok()) observer_.on_warning(ended.message());
  pipe_.reset();
}

}  // namespace strata::detail

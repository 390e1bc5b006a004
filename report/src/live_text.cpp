#include <strata/report/live_text.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/runtime/figure_text.h>
#include <strata/runtime/terminal_text.h>

#include "of_task.h"

namespace strata {
namespace {

constexpr int kLabel = 11, kFigure = 12;
constexpr std::size_t kShownSteps = 30;  // whose means are shown

double last_of(const RunRecord& run, std::string_view name) {
  const auto* const values = run.find(name);
  return values == nullptr || values->empty() ? kNoValue64 : values->back();
}
// The mean of the last steps.
double recent(const RunRecord& run, std::string_view name) {
  const auto* const values = run.find(name);
  if (values == nullptr) return kNoValue64;
  double sum = 0, n = 0;
  for (std::size_t i = values->size() - std::min(values->size(), kShownSteps); i < values->size(); ++i)
    if (std::isfinite((*values)[i])) {
      sum += (*values)[i];
      ++n;
    }
  return n > 0 ? sum / n : kNoValue64;
}

std::int64_t all_steps(const RunRecord& run) {
  for (const RunRecord::Setting& setting : run.settings)
    if (setting.key == "train.steps") return std::strtoll(setting.value.c_str(), nullptr, 10);
  return 0;
}

std::string duration(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds);
  if (s >= 86400) return fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
  return fmt::format("{:02}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60);
}

/// Builds lines that fit.
class Lines {
 public:
  explicit Lines(const LiveScreen& screen) : screen_(screen) {}
  bool is_full() const { return n_ >= screen_.rows; }
  /// `text` has as many columns as code points.
  void add(std::string_view unsafe, const char* colour = "") {
    if (is_full()) return;
    const std::string text = terminal_text(unsafe);
    ++n_;
    const bool coloured = screen_.colours && *colour != '\0';
    if (n_ > 1) out_ += '\n';
    if (coloured) out_ += fmt::format("\x1b[{}m", colour);
    out_ += cut(text);
    if (coloured) out_ += "\x1b[0m";
  }
  int width() const { return screen_.columns; }
  std::string text() && { return std::move(out_); }

 private:
  std::string_view cut(std::string_view text) const {
    int columns = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;
      if (columns++ == screen_.columns) return text.substr(0, i);
    }
    return text;
  }
  const LiveScreen& screen_;
  std::string out_;
  int n_ = 0;
};

// The last figures, from the least to the most, one per column.
std::string sparkline(const RunRecord& run, std::string_view name, int columns) {
  constexpr std::array<const char*, 8> kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  const auto* const values = run.find(name);
  if (values == nullptr || columns <= 0) return {};
  const std::size_t n = std::min(values->size(), static_cast<std::size_t>(columns)),
                    first = values->size() - n;
  double low = 1e300, high = -1e300;
  for (std::size_t i = first; i < values->size(); ++i)
    if (std::isfinite((*values)[i])) {
      low = std::min(low, (*values)[i]);
      high = std::max(high, (*values)[i]);
    }
  std::string text;
  for (std::size_t i = first; i < values->size(); ++i) {
    const double at = high > low ? ((*values)[i] - low) / (high - low) : 0.5;
    text +=
        std::isfinite((*values)[i]) ? kBlocks[static_cast<std::size_t>(std::clamp(at * 8, 0.0, 7.0))] : " ";
  }
  return text;
}

std::string bar(double share, int columns) {
  const int filled = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * columns));
  std::string text;
  for (int i = 0; i < columns; ++i) text += i < filled ? "\u2588" : "\u2591";
  return text;
}

void add_head(const RunRecord& run, Lines& lines) {
  const std::int64_t step = run.steps.empty() ? 0 : run.steps.back(), steps = all_steps(run);
  std::string text = fmt::format("{}  step {} of {}", run.name, step, steps);
  if (steps > 0)
    text += fmt::format("  {:.0f} %", 100.0 * static_cast<double>(step) / static_cast<double>(steps));
  const double step_s = recent(run, "step_s");
  if (run.has_ended)
    text += "  ended";
  else if (std::isfinite(step_s) && steps > step)
    text += "  " + duration(step_s * static_cast<double>(steps - step)) + " left";
  lines.add(text, "1");
}

void add_spark(const RunRecord& run, const char* label, const char* series, Lines& lines,
               const char* unit = "") {
  const double value = last_of(run, series);
  if (!std::isfinite(value)) return;
  lines.add(fmt::format("{:<{}}{:>{}} {}", label, kLabel, figure_text(value, unit), kFigure,
                        sparkline(run, series, lines.width() - kLabel - kFigure - 1)));
}

// How evenly experts are used: how many times the mean load the busiest one has.
void add_experts(const RunRecord& run, Lines& lines) {
  const double load = last_of(run, "expert_load");
  if (!std::isfinite(load)) return;
  lines.add(fmt::format("{:<{}}{:>{}} x the mean load, {} over layers, entropy {:.0f} %, {:.0f} idle",
                        "experts", kLabel, figure_text(load, ""), kFigure,
                        figure_text(last_of(run, "expert_load_mean"), ""),
                        100 * last_of(run, "expert_entropy"), last_of(run, "experts_empty")));
}

void add_tiers(const RunRecord& run, Lines& lines) {
  for (const RunRecord::TierUse& tier : run.tiers) {
    const double used = last_of(run, "used_bytes." + tier.name);
    if (!std::isfinite(used) || tier.planned == 0) continue;
    const bool limited = tier.budget < (std::uint64_t{1} << 60);
    const double of = static_cast<double>(limited ? tier.budget : tier.planned);
    lines.add(
        fmt::format("{:<{}}{:>{}} {} of {}", tier.name, kLabel, figure_text(used, "B"), kFigure,
                    bar(used / of, std::max(4, lines.width() - kLabel - kFigure - 20)), figure_text(of, "B")),
        "36");
  }
}

void add_waits(const RunRecord& run, Lines& lines) {
  const double step_s = recent(run, "step_s");
  if (!(step_s > 0)) return;
  const auto add = [&](const char* label, double seconds, const char* colour) {
    if (seconds >= 0.0005 * step_s)
      lines.add(fmt::format("{:<{}}{:>{}.1f} % {}", label, kLabel, 100 * seconds / step_s, kFigure - 2,
                            bar(seconds / step_s, std::max(4, lines.width() - kLabel - kFigure - 3))),
                colour);
  };
  add("computing", recent(run, "compute_s"), "32");
  for (const char* cause : {"h2d", "d2h", "optimizer", "nvme", "collective", "data", "host"})
    add(cause, recent(run, std::string("exposed_wait_s.") + cause), "33");
}

void add_lanes(const RunRecord& run, Lines& lines) {
  const double step_s = recent(run, "step_s");
  if (!(step_s > 0)) return;
  std::string text;
  for (const char* lane : {"h2d", "d2h", "nvme_read", "nvme_write", "network"})
    if (const double bytes = recent(run, std::string("moved_bytes.") + lane); bytes > 0)
      text += fmt::format("{}{} {}/s", text.empty() ? "" : "  ", lane, figure_text(bytes / step_s, "B"));
  if (!text.empty()) lines.add(fmt::format("{:<{}}{}", "moves", kLabel, text));
}

}  // namespace

std::string live_text(const RunRecord& run, const LiveScreen& screen) {
  Lines lines(screen);
  add_head(run, lines);
  if (run.steps.empty()) {
    lines.add("no step has ended yet");
    return std::move(lines).text();
  }
  add_spark(run, "loss", "loss", lines);
  for (const auto& [series, label] : detail::kOfTask) add_spark(run, label, series, lines);
  add_spark(run, "tokens/s", "tokens_per_s", lines);
  add_experts(run, lines);
  add_tiers(run, lines);
  add_waits(run, lines);
  add_lanes(run, lines);
  add_spark(run, "grad norm", "grad_norm", lines);
  add_spark(run, "step time", "step_s", lines, "s");
  if (!run.validations.empty())
    lines.add(fmt::format("{:<{}}{:>{}} at step {}", "validation", kLabel,
                          figure_text(run.validations.back().loss, ""), kFigure,
                          run.validations.back().step));
  return std::move(lines).text();
}

std::string live_line(const RunRecord& run) {
  if (run.steps.empty()) return run.name + ": no step has ended yet";
  std::string of_task;
  for (const auto& [series, label] : detail::kOfTask)
    if (const double value = last_of(run, series); std::isfinite(value))
      of_task += fmt::format(", {} {}", label, figure_text(value, ""));
  return fmt::format("{}: step {} of {}, loss {}{}, {} tokens/s, step {}{}", run.name, run.steps.back(),
                     all_steps(run), figure_text(last_of(run, "loss"), ""), of_task,
                     figure_text(recent(run, "tokens_per_s"), ""), figure_text(recent(run, "step_s"), "s"),
                     run.has_ended ? ", ended" : "");
}

}  // namespace strata

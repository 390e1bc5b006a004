#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/runtime/figure_text.h>

namespace strata {
namespace {

/// A line of a chart, and the series it shows.
struct Part {
  const char* series;
  const char* label;
};
/// A chart whose lines are series of a run.
struct ChartKind {
  const char *id, *title, *unit;
  std::array<Part, 9> parts;
  Chart::Form form = Chart::Form::lines;
  bool from_zero = false;
  bool compares = true;  ///< several runs are lines of one picture
};
constexpr std::array<ChartKind, 16> kCharts = {{
    {"loss", "Loss", "nats per token", {{{"loss", "training"}}}},
    {"reward", "Reward of the answers", "", {{{"reward", "reward"}}}},
    {"kl", "Divergence from the reference", "nats per token", {{{"kl", "KL"}}}, Chart::Form::lines, true},
    {"entropy",
     "Entropy of the policy",
     "nats per token",
     {{{"entropy", "entropy"}}},
     Chart::Form::lines,
     true},
    {"answer_tokens", "Tokens of an answer", "", {{{"answer_tokens", "tokens"}}}, Chart::Form::lines, true},
    {"accuracy",
     "Share of pairs in the right order",
     "",
     {{{"accuracy", "training"}}},
     Chart::Form::lines,
     true},
    {"scores",
     "Scores of the answers of pairs",
     "",
     {{{"chosen", "chosen"}, {"rejected", "rejected"}}},
     Chart::Form::lines,
     false,
     false},
    {"grad_norm", "Norm of the gradient", "", {{{"grad_norm", "norm"}}}, Chart::Form::lines, true},
    {"expert_load",
     "Load of the busiest expert, by the mean load",
     "",
     {{{"expert_load", "largest of all layers"}, {"expert_load_mean", "mean over layers"}}},
     Chart::Form::lines,
     true,
     false},
    {"expert_entropy",
     "Entropy of the load of experts, by its maximum",
     "",
     {{{"expert_entropy", "entropy"}}},
     Chart::Form::lines,
     true},
    {"router_aux", "Load balancing loss", "", {{{"router_aux", "auxiliary loss"}}}, Chart::Form::lines, true},
    {"lr", "Learning rate", "", {{{"lr", "learning rate"}}}, Chart::Form::lines, true},
    {"tokens_per_s",
     "Tokens per second",
     "",
     {{{"tokens_per_s", "tokens per second"}}},
     Chart::Form::lines,
     true},
    {"memory",
     "Memory by tier",
     "B",
     {{{"used_bytes.device", "device"}, {"used_bytes.pinned", "pinned RAM"}, {"used_bytes.nvme", "NVMe"}}},
     Chart::Form::lines,
     true,
     false},
    {"waits",
     "What a step does and waits for",
     "s",
     {{{"compute_s", "computing"},
       {"exposed_wait_s.h2d", "copies to the device"},
       {"exposed_wait_s.d2h", "copies from the device"},
       {"exposed_wait_s.optimizer", "the optimizer"},
       {"exposed_wait_s.nvme", "NVMe"},
       {"exposed_wait_s.collective", "other ranks"},
       {"exposed_wait_s.data", "data"},
       {"exposed_wait_s.host", "the host"}}},
     Chart::Form::stack,
     true,
     false},
    {"moved",
     "Bytes moved in a step",
     "B",
     {{{"moved_bytes.h2d", "to the device"},
       {"moved_bytes.d2h", "from the device"},
       {"moved_bytes.nvme_read", "read from NVMe"},
       {"moved_bytes.nvme_write", "written to NVMe"},
       {"moved_bytes.network", "to other ranks"}}},
     Chart::Form::lines,
     true,
     false},
}};

std::vector<double> as_doubles(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

bool has_any(const std::vector<double>& values, bool other_than_zero) {
  return std::any_of(values.begin(), values.end(),
                     [&](double v) { return std::isfinite(v) && (!other_than_zero || v != 0); });
}

void add_series(const RunRecord& run, int number, const Part& part, const std::string& label, Chart& chart) {
  const std::vector<double>* const values = run.find(part.series);
  if (values == nullptr || !has_any(*values, chart.form == Chart::Form::stack || !part.label)) return;
  chart.lines.push_back({.label = label,
                         .x = as_doubles(run.steps),
                         .y = *values,
                         .colour = static_cast<int>(chart.lines.size()) % 8,
                         .run = number,
                         .series = part.series});
}

void add_validation(const RunRecord& run, int number, const std::string& label, int colour, Chart& chart) {
  const bool is_loss = chart.id == "loss";
  Chart::Line line{.label = label,
                   .colour = colour,
                   .dashed = true,
                   .dots = true,
                   .run = number,
                   .series = is_loss ? "val_loss" : "val_accuracy"};
  for (const RunRecord::Validation& v : run.validations) {
    if (!is_loss && !std::isfinite(v.accuracy)) continue;
    line.x.push_back(static_cast<double>(v.step));
    line.y.push_back(is_loss ? v.loss : v.accuracy);
  }
  if (!line.x.empty()) chart.lines.push_back(std::move(line));
}

// A loss is in nats per token only where a run predicts the next token.
void name_loss(const std::vector<RunRecord>& runs, Chart& chart) {
  for (const RunRecord& run : runs)
    for (const RunRecord::Setting& setting : run.settings) {
      if (setting.key != "train.objective" || setting.value == "\"lm\"") continue;
      const bool is_of_pairs = setting.value == "\"dpo\"" || setting.value == "\"reward\"";
      chart.title = runs.size() > 1 ? "Loss" : is_of_pairs ? "Loss of the pairs" : "Loss of the policy";
      chart.unit = "";
    }
}

// Where a budget ends, beside what is used of it.
void add_budgets(const RunRecord& run, Chart& chart) {
  if (run.steps.empty()) return;
  for (const RunRecord::TierUse& tier : run.tiers)
    for (std::size_t i = 0; i < chart.lines.size(); ++i)
      if (chart.lines[i].series == "used_bytes." + tier.name && tier.budget > 0 &&
          tier.budget < (std::uint64_t{1} << 60)) {
        const auto budget = static_cast<double>(tier.budget);
        chart.lines.push_back(
            {.label = chart.lines[i].label + " budget",
             .x = {static_cast<double>(run.steps.front()), static_cast<double>(run.steps.back())},
             .y = {budget, budget},
             .colour = chart.lines[i].colour,
             .dashed = true});
        break;
      }
}

std::string words_of(const Chart::Line& line, const std::string& unit) {
  double first = kNoValue64, last = kNoValue64, least = kNoValue64, most = kNoValue64;
  double at_first = 0, at_last = 0;
  for (std::size_t i = 0; i < line.y.size(); ++i) {
    const double y = line.y[i];
    if (!std::isfinite(y)) continue;
    if (!std::isfinite(first)) {
      first = least = most = y;
      at_first = line.x[i];
    }
    last = y;
    at_last = line.x[i];
    least = std::min(least, y);
    most = std::max(most, y);
  }
  if (!std::isfinite(first)) return line.label + ": no figures";
  if (at_first == at_last)
    return fmt::format("{}: {} at step {:.0f}", line.label, figure_text(first, unit), at_first);
  if (least == most) return fmt::format("{}: {} in every step", line.label, figure_text(first, unit));
  return fmt::format("{}: {} at step {:.0f}, {} at step {:.0f}, between {} and {}", line.label,
                     figure_text(first, unit), at_first, figure_text(last, unit), at_last,
                     figure_text(least, unit), figure_text(most, unit));
}

void describe(Chart& chart) {
  for (const Chart::Line& line : chart.lines)
    chart.text += (chart.text.empty() ? "" : "; ") + words_of(line, chart.unit);
}

Chart empty_chart(const ChartKind& kind) {
  return {
      .id = kind.id, .title = kind.title, .unit = kind.unit, .form = kind.form, .from_zero = kind.from_zero};
}

Chart comparing(const ChartKind& kind, const std::vector<RunRecord>& runs) {
  Chart chart = empty_chart(kind);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool alone = runs.size() == 1;
    const std::size_t before = chart.lines.size();
    add_series(runs[i], static_cast<int>(i), kind.parts[0], alone ? kind.parts[0].label : runs[i].name,
               chart);
    if (chart.lines.size() > before) chart.lines.back().colour = static_cast<int>(i) % 8;
    if (chart.id == "loss" || chart.id == "accuracy")
      add_validation(runs[i], static_cast<int>(i), alone ? "validation" : runs[i].name + ", validation",
                     alone ? 1 : static_cast<int>(i) % 8, chart);
  }
  if (chart.id == "loss") name_loss(runs, chart);
  return chart;
}

Chart of_one(const ChartKind& kind, const RunRecord& run, int number, bool alone) {
  Chart chart = empty_chart(kind);
  if (!alone) {
    chart.id += fmt::format("-{}", number);
    chart.title += ", " + run.name;
  }
  for (const Part& part : kind.parts)
    if (part.series != nullptr) add_series(run, number, part, part.label, chart);
  if (std::string_view(kind.id) == "memory") add_budgets(run, chart);
  return chart;
}

}  // namespace

std::vector<Chart> charts_of(const std::vector<RunRecord>& runs) {
  std::vector<Chart> charts;
  const auto add = [&](Chart chart) {
    if (chart.lines.empty()) return;
    describe(chart);
    charts.push_back(std::move(chart));
  };
  for (const ChartKind& kind : kCharts) {
    if (kind.compares) {
      add(comparing(kind, runs));
      continue;
    }
    for (std::size_t i = 0; i < runs.size(); ++i)
      add(of_one(kind, runs[i], static_cast<int>(i), runs.size() == 1));
  }
  return charts;
}

}  // namespace strata

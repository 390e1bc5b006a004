#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/report/compare_runs.h>
#include <strata/report/report_page.h>
#include <strata/runtime/figure_text.h>

namespace strata {
namespace {

std::string waits_text(const RunRecord& run, int columns) {
  const double step_s = run.mean("step_s");
  if (!(step_s > 0)) return {};
  std::string text = fmt::format("A step takes {}\n", figure_text(step_s, "s"));
  const auto bar = [&](const std::string& name, double seconds) {
    if (!(seconds > 0)) return;
    const double share = seconds / step_s;
    const auto filled = static_cast<std::size_t>(std::lround(share * std::max(10, columns - 30)));
    std::string blocks;
    for (std::size_t i = 0; i < filled; ++i) blocks += "\xe2\x96\x88";
    text += fmt::format("{:>12} {:>5.1f} % {}\n", name, 100 * share, blocks);
  };
  bar("computing", run.mean("compute_s"));
  for (const char* cause : {"h2d", "d2h", "optimizer", "nvme", "collective", "data", "host"})
    bar(cause, run.mean(std::string("exposed_wait_s.") + cause));
  return text;
}

std::string pair_text(const RunRecord& base, const RunRecord& other) {
  const SpeedDifference speed = speed_difference(base, other);
  const LossDifference loss = loss_difference(base, other);
  std::string text = fmt::format("{} beside {}\n", other.name, base.name);
  text +=
      speed.blocks < 2
          ? std::string("  speed   too few steps to compare\n")
          : fmt::format(
                "  speed   a step takes {:.3f} of the other's time ({:.3f} to {:.3f}, 95 % confidence{})\n",
                speed.ratio, speed.low, speed.high, speed.is_significant() ? "" : ": not significant");
  if (loss.common_steps == 0)
    text += "  losses  no step in common\n";
  else if (loss.first_step < 0)
    text += fmt::format("  losses  the same bits in all {} common steps\n", loss.common_steps);
  else
    text +=
        fmt::format("  losses  differ from step {} on, by {:.3g} at most\n", loss.first_step, loss.largest);
  const auto digest = [](const RunRecord& run) {
    const auto at = run.facts.find("state_digest");
    return at == run.facts.end() ? std::string() : at->second;
  };
  if (!digest(base).empty() && !digest(other).empty())
    text += digest(base) == digest(other) ? "  states  the same bits at the end\n"
                                          : "  states  other bits at the end\n";
  return text;
}

/// A name, and a value of each run.
struct Row {
  std::string name;
  std::vector<std::string> values;
};
std::vector<Row> setting_rows(const std::vector<RunRecord>& runs) {
  std::vector<Row> rows;
  for (SettingDifference& difference : setting_differences(runs))
    rows.push_back({difference.key, std::move(difference.values)});
  return rows;
}
// Compares what the plan and the summary say, without what takes time, which differs always.
std::vector<Row> fact_rows(const std::vector<RunRecord>& runs) {
  std::vector<Row> rows;
  for (const auto& [name, value] : runs.front().facts) {
    if (name.ends_with("_bits") || name == "state_digest") continue;
    Row row{name, {}};
    bool differs = false;
    for (const RunRecord& run : runs) {
      const auto at = run.facts.find(name);
      row.values.push_back(at == run.facts.end() ? "" : at->second);
      differs = differs || row.values.back() != value;
    }
    if (differs) rows.push_back(std::move(row));
  }
  return rows;
}

std::string table(const std::string& title, const std::vector<Row>& rows,
                  const std::vector<RunRecord>& runs) {
  if (rows.empty()) return title + ": no difference\n";
  constexpr std::size_t kWidest = 40;
  std::size_t width = title.size();
  for (const Row& row : rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}}", title, width + 2);
  for (const RunRecord& run : runs) text += fmt::format("{:<{}}", run.name, kWidest + 2);
  text += "\n";
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}", row.name, width + 2);
    for (const std::string& value : row.values) {
      const bool fits = value.size() <= kWidest;
      text += fmt::format("{:<{}}",
                          value.empty() ? "-"
                          : fits        ? value
                                        : value.substr(0, kWidest - 3) + "...",
                          kWidest + 2);
    }
    while (text.ends_with(' ')) text.pop_back();
    text += "\n";
  }
  return text;
}

std::string tiers_text(const RunRecord& run) {
  std::string text;
  for (const RunRecord::TierUse& tier : run.tiers)
    if (tier.planned > 0)
      text += fmt::format("{:>12} {:>11} planned, {:>11} used, of {}\n", tier.name,
                          figure_text(static_cast<double>(tier.planned), "B"),
                          tier.peak ? figure_text(static_cast<double>(*tier.peak), "B") : "-",
                          tier.budget >= (std::uint64_t{1} << 60)
                              ? "no limit"
                              : figure_text(static_cast<double>(tier.budget), "B"));
  return text.empty() ? text : "Memory\n" + text;
}

}  // namespace

std::string report_text(const std::vector<RunRecord>& runs, int columns) {
  std::string text;
  for (const Chart& chart : charts_of(runs))
    if (chart.id == "loss" || chart.id == "reward" || chart.id == "kl" || chart.id == "accuracy" ||
        chart.id == "tokens_per_s")
      text += chart_text(chart, columns, 8) + "\n";
  for (const RunRecord& run : runs) {
    if (runs.size() > 1) text += run.name + "\n";
    text += waits_text(run, columns) + tiers_text(run);
  }
  return runs.size() > 1 ? text + comparison_text(runs) : text;
}

std::string comparison_text(const std::vector<RunRecord>& runs) {
  std::string text;
  for (std::size_t i = 1; i < runs.size(); ++i) text += pair_text(runs.front(), runs[i]);
  text += table("configuration", setting_rows(runs), runs) + table("plan and end", fact_rows(runs), runs);
  return text;
}

}  // namespace strata

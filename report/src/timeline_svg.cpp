#include "timeline_svg.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "svg.h"

namespace strata::detail {
namespace {

constexpr double kWidth = 720, kLeft = 110, kPlot = 600, kRow = 26;

std::string head(const std::string& id, double height, const std::string& title, const std::string& text) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1:.0f}\" role=\"img\" aria-labelledby=\"{2}-t {2}-d\" "
      "data-height=\"{1:.0f}\">\n<title "
      "id=\"{2}-t\">{3}</title><desc id=\"{2}-d\">{4}</desc>\n",
      kWidth, height, id, escaped(title), escaped(text));
}

}  // namespace

std::string timeline_svg(const RunRecord::Timeline& timeline, const std::string& id) {
  double end = 1;
  std::vector<double> busy(timeline.lanes.size());
  for (const auto& span : timeline.spans) {
    end = std::max(end, span.begin_us + span.us);
    busy[static_cast<std::size_t>(span.lane)] += span.us;
  }
  std::string words;
  for (std::size_t i = 0; i < timeline.lanes.size(); ++i)
    words += fmt::format("{}{} busy {:.0f} %", i == 0 ? "" : ", ", timeline.lanes[i], 100 * busy[i] / end);
  std::string svg =
      head(id, kRow * static_cast<double>(timeline.lanes.size()), "Lanes of the traced steps", words);
  for (std::size_t i = 0; i < timeline.lanes.size(); ++i)
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n",
                       kLeft - 8, kRow * static_cast<double>(i) + 17, escaped(timeline.lanes[i]));
  svg += "<g class=\"marks\">\n";
  struct Mark {
    int lane = -1, label = 0;
    double a = 0, b = 0;
  } last;
  const auto draw = [&](const Mark& mark) {
    if (mark.lane < 0) return;
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"var(--c{})\"/>\n",
        kLeft + mark.a, kRow * mark.lane + 2, std::max(0.4, mark.b - mark.a), kRow - 6, mark.label % 8);
  };
  for (const auto& span : timeline.spans) {
    const Mark mark{span.lane, span.label, kPlot * span.begin_us / end,
                    kPlot * (span.begin_us + span.us) / end};
    if (mark.lane == last.lane && mark.label == last.label && mark.a - last.b < 0.4) {
      last.b = std::max(last.b, mark.b);
      continue;
    }
    draw(last);
    last = mark;
  }
  draw(last);
  return svg + "</g></svg>\n";
}

namespace {

constexpr std::array<std::pair<char, const char*>, 3> kTiers = {
    {{'d', "device"}, {'p', "pinned RAM"}, {'n', "NVMe"}}};

// Neighbours in the same tier are one rectangle.
std::string cells_of(const std::string& tiers, std::size_t chunks, double y) {
  std::string cells;
  for (std::size_t begin = 0; begin < tiers.size();) {
    std::size_t last = begin;
    while (last < tiers.size() && tiers[last] == tiers[begin]) ++last;
    for (std::size_t t = 0; t < kTiers.size(); ++t)
      if (tiers[begin] == kTiers[t].first)
        cells += fmt::format(
            "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"var(--c{})\"/>\n",
            kLeft + kPlot * static_cast<double>(begin) / static_cast<double>(chunks), y + 2,
            kPlot * static_cast<double>(last - begin) / static_cast<double>(chunks), kRow - 6, t);
    begin = last;
  }
  return cells;
}

std::string counts_of(const std::string& tiers) {
  std::string counts;
  for (const auto& [letter, name] : kTiers)
    if (const auto n = std::count(tiers.begin(), tiers.end(), letter); n > 0)
      counts += fmt::format("{}{} in {}", counts.empty() ? "" : ", ", n, name);
  return counts;
}

}  // namespace

// The payloads that have no home have rows, too, if a step was traced.
std::string chunk_map_svg(const RunRecord& run, const std::string& id) {
  std::vector<RunRecord::Homes> rows = run.homes;
  for (std::size_t row = rows.size(); row < run.playback.begin.size(); ++row)
    rows.push_back({run.playback.begin[row].payload, {}});
  std::size_t chunks = 0;
  for (const RunRecord::Homes& row : rows) chunks = std::max(chunks, row.tiers.size());
  std::string words, names, cells;
  double y = 0;
  for (const RunRecord::Homes& row : rows) {
    const std::string counts = counts_of(row.tiers);
    if (counts.empty() && run.playback.us <= 0) continue;
    if (!counts.empty()) words += fmt::format("{}{}: {}", words.empty() ? "" : "; ", row.payload, counts);
    names += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n",
                         kLeft - 8, y + 17, escaped(row.payload));
    cells += cells_of(row.tiers, chunks, y);
    y += kRow;
  }
  return head(id, std::max(y, kRow), fmt::format("Where the payloads of {} chunks live", chunks), words) +
         names + "<g class=\"cells\">\n" + cells + "</g></svg>\n";
}

}  // namespace strata::detail

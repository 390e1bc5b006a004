#include "expert_map.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include <strata/runtime/figure_text.h>

#include "svg.h"

namespace strata::detail {
namespace {

constexpr double kMapWidth = 720, kMapLeft = 110, kMapPlot = 600, kMapBottom = 24, kMapMostHeight = 480;
constexpr std::size_t kMapColumns = 200, kMapLabels = 24;
constexpr int kMapShades = 8;
constexpr std::string_view kLayerLoads = "expert_loads.";

/// The loads of a layer, as many as there are columns: where several steps fall into one, their mean.
struct LayerRow {
  std::int64_t layer = 0;
  std::vector<double> loads;
  double first = kNoValue64, last = kNoValue64;
};

std::vector<double> load_columns(const std::vector<double>& values, std::size_t columns) {
  std::vector<double> sums(columns, 0.0), counts(columns, 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const std::size_t column = i * columns / values.size();
    sums[column] += values[i];
    ++counts[column];
  }
  for (std::size_t i = 0; i < columns; ++i) sums[i] = counts[i] > 0 ? sums[i] / counts[i] : kNoValue64;
  return sums;
}

std::vector<LayerRow> layer_rows_of(const RunRecord& run) {
  std::vector<LayerRow> rows;
  const std::size_t columns = std::min(run.steps.size(), kMapColumns);
  for (const RunRecord::Series& series : run.series) {
    if (!series.name.starts_with(kLayerLoads)) continue;
    LayerRow row{std::strtoll(series.name.c_str() + kLayerLoads.size(), nullptr, 10),
                 load_columns(series.values, columns)};
    for (const double value : series.values) {
      if (!std::isfinite(value)) continue;
      if (!std::isfinite(row.first)) row.first = value;
      row.last = value;
    }
    if (std::isfinite(row.first)) rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const LayerRow& a, const LayerRow& b) { return a.layer < b.layer; });
  return rows;
}

double largest_load_of(const std::vector<LayerRow>& rows) {
  double most = 1;
  for (const LayerRow& row : rows)
    for (const double load : row.loads)
      if (std::isfinite(load)) most = std::max(most, load);
  return most;
}

/// 0 for an even load, kMapShades - 1 for the largest; -1 where there is none.
int shade_of(double load, double most) {
  if (!std::isfinite(load)) return -1;
  const double share = most > 1 ? (load - 1) / (most - 1) : 0;
  return std::clamp(static_cast<int>(share * kMapShades), 0, kMapShades - 1);
}
double opacity_of(int shade) { return 0.08 + 0.92 * shade / (kMapShades - 1); }

// Neighbours of one shade are one rectangle.
std::string load_cells_of(const LayerRow& row, double most, double y, double height) {
  std::string cells;
  const auto n = static_cast<double>(row.loads.size());
  for (std::size_t begin = 0; begin < row.loads.size();) {
    const int shade = shade_of(row.loads[begin], most);
    std::size_t end = begin;
    while (end < row.loads.size() && shade_of(row.loads[end], most) == shade) ++end;
    if (shade >= 0)
      cells += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"var(--c1)\" "
          "fill-opacity=\"{:.2f}\"/>\n",
          kMapLeft + kMapPlot * static_cast<double>(begin) / n, y,
          kMapPlot * static_cast<double>(end - begin) / n, height, opacity_of(shade));
    begin = end;
  }
  return cells;
}

std::string load_words_of(const std::vector<LayerRow>& rows) {
  const auto by_last = [](const LayerRow& a, const LayerRow& b) { return a.last < b.last; };
  const LayerRow& least = *std::min_element(rows.begin(), rows.end(), by_last);
  const LayerRow& most = *std::max_element(rows.begin(), rows.end(), by_last);
  const auto words = [](const LayerRow& row) {
    return fmt::format("layer {} from {} to {}", row.layer, figure_text(row.first, ""),
                       figure_text(row.last, ""));
  };
  if (rows.size() == 1) return "Load of the busiest expert by the mean load: " + words(least);
  return fmt::format(
      "Load of the busiest expert by the mean load, over {} layers: most even at the end {}, "
      "least even {}",
      rows.size(), words(least), words(most));
}

std::string map_label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text class=\"tick\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                     anchor, escaped(text));
}

std::string load_legend_of(double most) {
  std::string html = "<ul class=\"legend\">";
  for (const int shade : {0, kMapShades / 2, kMapShades - 1}) {
    const double load = shade == kMapShades - 1 ? most : 1 + (most - 1) * shade / kMapShades;
    html += fmt::format("<li><i style=\"border-color:var(--c1);opacity:{:.2f}\"></i>{}</li>",
                        opacity_of(shade), shade == 0 ? "1, even" : figure_text(load, ""));
  }
  return html + "</ul>\n";
}

}  // namespace

std::string expert_map_html(const RunRecord& run, const std::string& id) {
  const std::vector<LayerRow> rows = layer_rows_of(run);
  if (rows.empty()) return {};
  const double most = largest_load_of(rows),
               height = std::min(26.0, kMapMostHeight / static_cast<double>(rows.size())),
               bottom = height * static_cast<double>(rows.size());
  const std::string words = load_words_of(rows);
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1:.0f}\" role=\"img\" aria-labelledby=\"{2}-t {2}-d\">\n<title "
      "id=\"{2}-t\">Load of experts by layer and step</title><desc id=\"{2}-d\">{3}</desc>\n",
      kMapWidth, bottom + kMapBottom, id, escaped(words));
  const std::size_t every = (rows.size() + kMapLabels - 1) / kMapLabels;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = height * static_cast<double>(i);
    if (i % every == 0)
      svg += map_label(kMapLeft - 8, y + height / 2 + 4, "end", fmt::format("layer {}", rows[i].layer));
    svg += load_cells_of(rows[i], most, y, std::max(height - 1, height * 0.9));
  }
  svg += map_label(kMapLeft, bottom + 16, "start", fmt::format("step {}", run.steps.front()));
  svg += map_label(kMapLeft + kMapPlot, bottom + 16, "end", fmt::format("step {}", run.steps.back()));
  return "<figure>" + svg + "</svg>\n" + load_legend_of(most) + "<figcaption class=\"note\">" +
         escaped(words) + ".</figcaption></figure>\n";
}

}  // namespace strata::detail

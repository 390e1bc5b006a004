#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/runtime/figure_text.h>

#include "scale.h"

namespace strata {
namespace {

/// Dots of a terminal: two columns and four rows in each character (Braille patterns, U+2800).
class Dots {
 public:
  Dots(int columns, int rows) : columns_(columns), rows_(rows), cells_(cell(rows, 0)) {}
  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }
  void set(int x, int y) {
    constexpr std::uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    cells_[cell(y / 4, x / 2)] |= kBits[y % 4][x % 2];
  }
  std::string row(int number) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const std::uint8_t bits = cells_[cell(number, column)];
      if (bits == 0) {
        text += ' ';
        continue;
      }
      text += '\xe2';
      text += static_cast<char>(0xa0 + (bits >> 6));
      text += static_cast<char>(0x80 + (bits & 0x3f));
    }
    return text;
  }

 private:
  std::size_t cell(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) +
           static_cast<std::size_t>(column);
  }
  int columns_, rows_;
  std::vector<std::uint8_t> cells_;
};

struct Extent {
  double x_low = 1e300, x_high = -1e300, y_low = 1e300, y_high = -1e300;
};
Extent extent_of(const Chart& chart) {
  Extent e;
  for (const Chart::Line& line : chart.lines)
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (!std::isfinite(line.y[i])) continue;
      e.x_low = std::min(e.x_low, line.x[i]);
      e.x_high = std::max(e.x_high, line.x[i]);
      e.y_low = std::min(e.y_low, line.y[i]);
      e.y_high = std::max(e.y_high, line.y[i]);
    }
  if (chart.from_zero) e.y_low = std::min(e.y_low, 0.0);
  return e;
}

}  // namespace

std::string chart_text(const Chart& chart, int columns, int rows) {
  const Extent e = extent_of(chart);
  std::string text = chart.title + (chart.unit.size() > 1 ? ", " + chart.unit : "") + "\n";
  if (!(e.x_low <= e.x_high)) return text + "  no figures yet\n";
  std::vector<double> ticks;
  const detail::Scale y = detail::rounded(e.y_low, e.y_high, chart.log_scale, chart.unit, 4, ticks);
  const detail::Scale x{e.x_low, e.x_high > e.x_low ? e.x_high : e.x_low + 1};
  constexpr int kLabel = 10;
  Dots dots(std::max(8, columns - kLabel - 1), rows);
  for (const Chart::Line& line : chart.lines) {
    int before_x = -1, before_y = 0;
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (!std::isfinite(line.y[i])) {
        before_x = -1;
        continue;
      }
      const int at_x = static_cast<int>(std::lround(x.at(line.x[i]) * (dots.width() - 1))),
                at_y = static_cast<int>(std::lround((1 - y.at(line.y[i])) * (dots.height() - 1)));
      const int steps = before_x < 0 ? 0 : std::max(std::abs(at_x - before_x), std::abs(at_y - before_y));
      for (int s = 1; s < steps; ++s)
        dots.set(before_x + (at_x - before_x) * s / steps, before_y + (at_y - before_y) * s / steps);
      dots.set(at_x, at_y);
      before_x = at_x;
      before_y = at_y;
    }
  }
  for (int row = 0; row < rows; ++row) {
    const std::string label = row == 0          ? figure_text(y.high, chart.unit)
                              : row == rows - 1 ? figure_text(y.low, chart.unit)
                                                : std::string();
    text += fmt::format("{:>{}} {}\n", label, kLabel, dots.row(row));
  }
  text += fmt::format("{:>{}} step {:.0f} to {:.0f}", "", kLabel, e.x_low, e.x_high);
  if (chart.lines.size() > 1) {
    text += ":";
    for (const Chart::Line& line : chart.lines)
      text += (&line == &chart.lines.front() ? " " : ", ") + line.label;
  }
  return text + "\n";
}

}  // namespace strata

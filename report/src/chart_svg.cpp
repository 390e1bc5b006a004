#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/runtime/figure_text.h>

#include "scale.h"
#include "svg.h"

namespace strata {
namespace {

using detail::escaped;
using detail::Scale;

constexpr double kWidth = 720, kHeight = 300, kLeft = 104, kRight = 30, kTop = 14, kBottom = 38;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;

/// The figures of a chart as they are drawn: those of a stack are sums.
struct Drawn {
  std::vector<std::vector<double>> low, high;  // the values of each line
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
};

void stack_up(const Chart& chart, Drawn& drawn) {
  for (std::size_t i = 1; i < chart.lines.size(); ++i)
    for (std::size_t k = 0; k < drawn.high[i].size() && k < drawn.high[i - 1].size(); ++k) {
      const double below = drawn.high[i - 1][k];
      drawn.low[i][k] = below;
      drawn.high[i][k] = below + (std::isfinite(drawn.high[i][k]) ? drawn.high[i][k] : 0);
    }
}

Drawn drawn_of(const Chart& chart) {
  Drawn drawn;
  for (const Chart::Line& line : chart.lines) {
    drawn.high.push_back(line.y);
    drawn.low.emplace_back(line.y.size(), 0.0);
  }
  if (chart.form == Chart::Form::stack) stack_up(chart, drawn);
  drawn.x_low = drawn.y_low = 1e300;
  drawn.x_high = drawn.y_high = -1e300;
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    for (const double x : chart.lines[i].x) {
      drawn.x_low = std::min(drawn.x_low, x);
      drawn.x_high = std::max(drawn.x_high, x);
    }
    for (const double y : drawn.high[i])
      if (std::isfinite(y)) {
        drawn.y_low = std::min(drawn.y_low, y);
        drawn.y_high = std::max(drawn.y_high, y);
      }
  }
  if (chart.from_zero) drawn.y_low = std::min(drawn.y_low, 0.0);
  if (drawn.y_low > drawn.y_high) drawn.y_low = 0, drawn.y_high = 1;
  if (!(drawn.x_high > drawn.x_low)) drawn.x_high = drawn.x_low + 1;
  return drawn;
}

/// The least and the most of the points that fall on one pixel: what can be seen of many.
std::vector<std::size_t> visible(const std::vector<double>& x, const std::vector<double>& y, double x_low,
                                 double x_high) {
  std::vector<std::size_t> kept;
  if (x.size() <= 2 * static_cast<std::size_t>(kPlotWidth)) {
    for (std::size_t i = 0; i < x.size(); ++i) kept.push_back(i);
    return kept;
  }
  for (std::size_t i = 0; i < x.size();) {
    const auto pixel = [&](std::size_t at) {
      return std::floor((x[at] - x_low) / (x_high - x_low) * kPlotWidth);
    };
    const double here = pixel(i);
    std::size_t least = i, most = i, end = i;
    for (; end < x.size() && pixel(end) == here; ++end) {
      if (y[end] < y[least] || !std::isfinite(y[least])) least = end;
      if (y[end] > y[most] || !std::isfinite(y[most])) most = end;
    }
    kept.push_back(std::min(least, most));
    if (least != most) kept.push_back(std::max(least, most));
    i = end;
  }
  return kept;
}

/// Draws one chart.
class Picture {
 public:
  explicit Picture(const Chart& chart) : chart_(chart), drawn_(drawn_of(chart)) {
    y_ = detail::rounded(drawn_.y_low, drawn_.y_high, chart.log_scale, chart.unit, 5, y_ticks_);
    (void)detail::rounded(drawn_.x_low, drawn_.x_high, false, "", 6, x_ticks_);
    x_ = {drawn_.x_low, drawn_.x_high};
  }

  std::string body() {
    axes();
    for (std::size_t i = 0; i < chart_.lines.size(); ++i)
      chart_.form == Chart::Form::stack ? area(chart_.lines.size() - 1 - i) : line(i);
    return std::move(svg_);
  }
  // The attributes by which a script finds the step under the pointer.
  std::string attributes() const {
    return fmt::format("data-x0=\"{:.6g}\" data-x1=\"{:.6g}\" data-left=\"{}\" data-width=\"{}\"", x_.low,
                       x_.high, kLeft, kPlotWidth);
  }

 private:
  double x(double value) const { return kLeft + kPlotWidth * x_.at(value); }
  double y(double value) const { return kTop + kPlotHeight * (1 - y_.at(value)); }

  void axes() {
    for (const double tick : y_ticks_)
      svg_ += fmt::format(
          "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text class=\"tick\" "
          "x=\"{3}\" "
          "y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
          kLeft, kWidth - kRight, y(tick), kLeft - 8, y(tick) + 4, escaped(figure_text(tick, chart_.unit)));
    for (const double tick : x_ticks_)
      if (tick >= x_.low && tick <= x_.high)
        svg_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                            x(tick), kHeight - kBottom + 18, escaped(figure_text(tick, "")));
    svg_ += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text>\n",
                        kWidth - kRight, kHeight - 4);
  }

  std::string points(std::size_t i, const std::vector<double>& values,
                     const std::vector<std::size_t>& kept) const {
    std::string path;
    bool goes_on = false;
    for (const std::size_t k : kept) {
      const double value = values[k];
      if (!std::isfinite(value)) {
        goes_on = false;
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", goes_on ? "L" : "M", x(chart_.lines[i].x[k]), y(value));
      goes_on = true;
    }
    return path;
  }
  void line(std::size_t i) {
    const Chart::Line& of = chart_.lines[i];
    const auto kept = visible(of.x, drawn_.high[i], x_.low, x_.high);
    svg_ += fmt::format("<path class=\"line{}\" stroke=\"var(--c{})\" d=\"{}\"/>\n",
                        of.dashed ? " dashed" : "", of.colour, points(i, drawn_.high[i], kept));
    if (!of.dots && kept.size() > 1) return;
    for (const std::size_t k : kept)
      if (std::isfinite(drawn_.high[i][k]))
        svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"var(--c{})\"/>\n", x(of.x[k]),
                            y(drawn_.high[i][k]), of.colour);
  }
  // From the line below it up to its own.
  void area(std::size_t i) {
    const Chart::Line& of = chart_.lines[i];
    const auto kept = visible(of.x, drawn_.high[i], x_.low, x_.high);
    std::string path = points(i, drawn_.high[i], kept);
    for (std::size_t k = kept.size(); k-- > 0;)
      path += fmt::format("L{:.1f} {:.1f}", x(of.x[kept[k]]), y(drawn_.low[i][kept[k]]));
    svg_ += fmt::format("<path class=\"area\" fill=\"var(--c{})\" d=\"{}Z\"/>\n", of.colour, path);
  }

  const Chart& chart_;
  const Drawn drawn_;
  Scale x_, y_;
  std::vector<double> x_ticks_, y_ticks_;
  std::string svg_;
};

// Below the picture, for one that stands alone.
std::string legend(const Chart& chart, double& height) {
  std::string svg;
  double x = kLeft, y = kHeight + 14;
  for (const Chart::Line& line : chart.lines) {
    const double width = 34 + 6.8 * static_cast<double>(line.label.size());
    if (x + width > kWidth && x > kLeft) {
      x = kLeft;
      y += 20;
    }
    svg += fmt::format(
        "<line x1=\"{0:.0f}\" x2=\"{1:.0f}\" y1=\"{2:.0f}\" y2=\"{2:.0f}\" stroke=\"var(--c{3})\" "
        "stroke-width=\"{4}\"{5}/>"
        "<text class=\"tick\" x=\"{6:.0f}\" y=\"{7:.0f}\">{8}</text>\n",
        x, x + 16, y - 4, line.colour, chart.form == Chart::Form::stack ? 10 : 2,
        line.dashed ? " stroke-dasharray=\"5 4\"" : "", x + 22, y, escaped(line.label));
    x += width;
  }
  height = y + 12;
  return svg;
}

}  // namespace

std::string chart_svg(const Chart& chart, bool standalone) {
  Picture picture(chart);
  double height = kHeight;
  const std::string more = standalone ? legend(chart, height) : std::string();
  const double top = standalone ? 26 : 0;
  std::string svg = fmt::format(
      "<svg {0}class=\"chart\" viewBox=\"0 {1:.0f} {2:.0f} {3:.0f}\" role=\"img\" aria-labelledby=\"{4}-t "
      "{4}-d\" {5}>\n"
      "<title id=\"{4}-t\">{6}</title><desc id=\"{4}-d\">{7}</desc>\n",
      standalone ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", -top, kWidth, height + top, chart.id,
      picture.attributes(), escaped(chart.title), escaped(chart.text));
  if (standalone)
    svg += fmt::format(
        "{}<rect class=\"paper\" y=\"-26\" width=\"100%\" height=\"100%\"/><text class=\"title\" x=\"{}\" "
        "y=\"-6\">{}{}</text>\n",
        detail::picture_style(), kLeft, escaped(chart.title),
        chart.unit.size() > 1 ? ", " + escaped(chart.unit) : "");
  return svg + picture.body() + more + "</svg>\n";
}

}  // namespace strata

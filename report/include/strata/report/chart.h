#pragma once

#include <string>
#include <utility>
#include <vector>

#include <strata/report/run_record.h>

namespace strata {

/// A picture of figures over steps.
struct Chart {
  enum class Form : std::uint8_t { lines, stack };
  struct Line {
    std::string label;
    std::vector<double> x = {}, y = {};  ///< NaN: a gap
    int colour = 0;                      ///< one of eight
    bool dashed = false;
    bool dots = false;  ///< few points, which are marked
    /// Where the page's data has it: number of the run, and name of the series; empty: nowhere.
    int run = 0;
    std::string series = {};
  };
  std::string id = {}, title = {};
  std::string unit = {};  ///< "B" for bytes, "s" for seconds, or any other
  Form form = Form::lines;
  bool from_zero = false;
  bool log_scale = false;
  std::vector<Line> lines = {};
  std::string text = {};  ///< the contents of the chart in words
};

/// The charts of one run, or of several in one picture each where that can be read: those that compare them.
std::vector<Chart> charts_of(const std::vector<RunRecord>& runs);

/// As SVG. Colours are CSS variables (--c0 to --c7, --ink, --muted, --grid); with `standalone` the picture
/// defines them itself, for light and for dark schemes.
std::string chart_svg(const Chart& chart, bool standalone);
/// For a terminal of `columns` columns, in Braille dots.
std::string chart_text(const Chart& chart, int columns, int rows);

}  // namespace strata

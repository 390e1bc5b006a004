// Pictures of figures.
#include <gmock/gmock.h>

#include <cmath>

#include <strata/report/chart.h>

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Chart a_chart(std::size_t points) {
  Chart chart{.id = "loss", .title = "Loss <of> a & b", .unit = "nats per token", .text = "falls"};
  Chart::Line line{.label = "training"};
  for (std::size_t i = 0; i < points; ++i) {
    line.x.push_back(static_cast<double>(i + 1));
    line.y.push_back(3 + 4 / std::sqrt(static_cast<double>(i + 1)));
  }
  chart.lines.push_back(std::move(line));
  return chart;
}

TEST(ChartSvg, NamesAndDescribesItselfAndEscapesText) {
  const std::string svg = chart_svg(a_chart(20), true);
  EXPECT_THAT(svg, HasSubstr("role=\"img\""));
  EXPECT_THAT(svg, HasSubstr("<title id=\"loss-t\">Loss &lt;of&gt; a &amp; b</title>"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(chart_svg(a_chart(20), false), Not(HasSubstr("<style>"))) << "a page has one for all";
}

TEST(ChartSvg, OfManyStepsKeepsWhatCanBeSeen) {
  Chart many = a_chart(100000);
  many.lines[0].y[54321] = 50;  // one step that stands out
  const std::string svg = chart_svg(many, false);
  EXPECT_LT(svg.size(), 60000u);
  EXPECT_THAT(svg, HasSubstr(">50</text>")) << "the axis reaches up to it";
  EXPECT_THAT(svg, HasSubstr(" 14.0L")) << "and so does the line, at the top of the plot";
}

TEST(ChartSvg, AGapIsNotBridged) {
  Chart chart = a_chart(10);
  chart.lines[0].y[5] = std::nan("");
  const std::string svg = chart_svg(chart, false);
  const std::size_t path = svg.find("class=\"line\"");
  const std::string d = svg.substr(path, svg.find("/>", path) - path);
  EXPECT_EQ(std::count(d.begin(), d.end(), 'M'), 2);
}

TEST(ChartText, HasAxesAndFitsTheTerminal) {
  const std::string text = chart_text(a_chart(200), 60, 8);
  EXPECT_THAT(text, HasSubstr("Loss"));
  EXPECT_THAT(text, HasSubstr("step 1 to 200"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_THAT(chart_text(Chart{.title = "Loss"}, 60, 8), HasSubstr("no figures yet"));
}

}  // namespace
}  // namespace strata

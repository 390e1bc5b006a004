// How evenly experts are used: a heat map and curves in the page, and a line in the terminal.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/report/live_text.h>
#include <strata/report/report_page.h>

#include "report/run_fixture.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A run whose layers 1 and 3 are mixtures: the load of the first falls from 4 to 1, that of the other is 2.
RunRecord mixture_run(const test::TempDir& dir, int steps) {
  const std::string folder = dir.path() + "/run";
  test::write_run(folder, steps);
  std::string metrics;
  for (int step = 1; step <= steps; ++step) {
    std::string line = test::metrics_line(step, 3, 0.5);
    const double load = 4 - 3.0 * (step - 1) / std::max(1, steps - 1);
    line.insert(
        1, fmt::format("\"expert_load\": {0:.3f}, \"expert_load_mean\": {1:.3f}, \"expert_entropy\": 0.875, "
                       "\"experts_empty\": 5, \"expert_loads\": {{\"3\": 2, \"1\": {2:.3f}}}, ",
                       std::max(load, 2.0), (load + 2) / 2, load));
    metrics += line;
  }
  must(write_text_atomically(posix_io(), folder + "/metrics.jsonl", metrics));
  return must(read_run_record(posix_io(), folder));
}

std::string map_of(const std::string& page) {
  const std::size_t begin = page.find("id=\"experts\"");
  if (begin == std::string::npos) return {};
  return page.substr(begin, page.find("</section>", begin) - begin);
}
std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(ExpertMap, HasARowForEachLayerInTheirOrder) {
  const test::TempDir dir;
  const std::string map = map_of(report_html({mixture_run(dir, 40)}));
  EXPECT_LT(map.find(">layer 1<"), map.find(">layer 3<"));
  EXPECT_EQ(count(map, "text-anchor=\"end\">layer "), 2u);
  EXPECT_THAT(map, HasSubstr(">step 1<"));
  EXPECT_THAT(map, HasSubstr(">step 40<"));
  EXPECT_THAT(map, HasSubstr("most even at the end layer 1 from 4 to 1, least even layer 3 from 2 to 2"));
  // The falling load has all eight shades, and the other one has one.
  EXPECT_EQ(count(map, "<rect "), 8u + 1u);
  EXPECT_THAT(map, HasSubstr("fill-opacity=\"1.00\""));
  EXPECT_THAT(map, HasSubstr("fill-opacity=\"0.08\""));
}

TEST(ExpertMap, OfManyStepsAColumnIsTheMeanOfSome) {
  const test::TempDir dir;
  const std::string map = map_of(report_html({mixture_run(dir, 3000)}));
  EXPECT_EQ(count(map, "<rect "), 9u);
  EXPECT_LT(map.size(), 4000u);
}

TEST(ExpertMap, ARunWithoutExpertsHasNone) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 10);
  const RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run"));
  EXPECT_EQ(map_of(report_html({run})), "");
  EXPECT_THAT(live_text(run, {.columns = 100, .rows = 40}), Not(HasSubstr("experts")));
}

TEST(ExpertMap, TheLargestAndTheMeanLoadAreCurves) {
  const test::TempDir dir;
  for (const Chart& chart : charts_of({mixture_run(dir, 40)})) {
    if (chart.id != "expert_load") continue;
    EXPECT_THAT(chart.text, HasSubstr("largest of all layers: 4 at step 1, 2 at step 40"));
    EXPECT_THAT(chart.text, HasSubstr("mean over layers: 3 at step 1, 1.5 at step 40"));
    return;
  }
  FAIL() << "no chart of the load";
}

TEST(ExpertMap, TheTerminalHasALineThatFits) {
  const test::TempDir dir;
  const std::string text = live_text(mixture_run(dir, 40), {.columns = 80, .rows = 40});
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "\nexperts +2 x the mean load, 1.5 over layers, entropy 88 %, 5 idle\n"));
}

}  // namespace
}  // namespace strata

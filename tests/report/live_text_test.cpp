// The screen of a run that is watched fits the terminal, and shows the last steps.
#include <gmock/gmock.h>

#include <sstream>

#include <strata/report/live_text.h>

#include "report/run_fixture.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Characters of UTF-8: bytes that do not continue one.
int columns_of(const std::string& line) {
  int columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return columns;
}

RunRecord run_of(const test::TempDir& dir, int steps) {
  test::write_run(dir.path() + "/run", steps);
  return must(read_recent_steps(posix_io(), dir.path() + "/run"));
}

TEST(LiveText, FitsEveryTerminal) {
  const test::TempDir dir;
  const RunRecord run = run_of(dir, 250);
  for (const int columns : {20, 30, 50, 80, 120, 300})
    for (const int rows : {1, 2, 8, 15, 24, 60}) {
      const std::vector<std::string> lines = lines_of(live_text(run, {.columns = columns, .rows = rows}));
      EXPECT_LE(static_cast<int>(lines.size()), rows) << columns;
      for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns) << rows << ": " << line;
    }
}

TEST(LiveText, ShowsTheLastStep) {
  const test::TempDir dir;
  const RunRecord run = run_of(dir, 250);
  const std::string text = live_text(run, {.columns = 100, .rows = 40});
  EXPECT_THAT(text, HasSubstr("step 250"));
  for (const char* of :
       {"loss", "tokens/s", "device", "pinned", "computing", "nvme", "moves", "grad norm", "validation"})
    EXPECT_THAT(text, HasSubstr(of));
  EXPECT_THAT(text, HasSubstr("80.0 %")) << "of a step is computed";
  EXPECT_THAT(text, ::testing::ContainsRegex("step time +[0-9.]+ m?s")) << "a figure with its unit";
  EXPECT_THAT(live_line(run), HasSubstr("run: step 250 of "));
}

TEST(LiveText, WithoutColoursHasNoEscapeSequences) {
  const test::TempDir dir;
  const RunRecord run = run_of(dir, 5);
  EXPECT_EQ(live_text(run, {.colours = false}).find('\x1b'), std::string::npos);
  EXPECT_NE(live_text(run, {.colours = true}).find('\x1b'), std::string::npos);
}

TEST(LiveText, ARunThatLearnsFromAnswersShowsTheirRewards) {
  const test::TempDir dir;
  RunRecord run = run_of(dir, 3);
  run.series.push_back({"reward", {0.25, 0.25, 0.75}});
  run.series.push_back({"kl", {0, 0, 0.125}});
  EXPECT_THAT(live_line(run), HasSubstr(", reward 0.75, kl 0.125, "));
  EXPECT_THAT(live_text(run, {.colours = false}), HasSubstr("reward     "));
}

TEST(LiveText, ANameThatATerminalWouldObeyIsShownWithoutItsEscapes) {
  const test::TempDir dir;
  RunRecord run = run_of(dir, 3);
  run.name = "a\x1b]0;b\x07";
  EXPECT_EQ(live_text(run, {.colours = false}).find_first_of("\x1b\x07"), std::string::npos);
}

TEST(LiveText, OfARunWithoutAStepSaysSo) {
  const test::TempDir dir;
  const RunRecord run = run_of(dir, 0);
  EXPECT_THAT(live_text(run, {}), HasSubstr("no step has ended yet"));
  EXPECT_THAT(live_line(run), HasSubstr("no step has ended yet"));
}

}  // namespace
}  // namespace strata

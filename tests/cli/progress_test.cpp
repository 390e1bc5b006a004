#include "progress.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>

namespace strata::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TextSink final : public ProgressSink {
 public:
  TextSink() { text.reserve(1 << 16); }
  void write(std::string_view more) noexcept override { text += more; }
  std::string text;
};

StepProgress step_of(std::int64_t step) {
  return {.step = step,
          .steps = 100,
          .loss = 3.25,
          .tokens_per_s = 5120.4,
          .device_bytes = 32u << 20,
          .pinned_bytes = 1536,
          .nvme_bytes = 0,
          .elapsed_s = static_cast<double>(step)};
}

TEST(ProgressTest, PlainLinesComeEveryNStepsAndAtBothEnds) {
  TextSink sink;
  Progress progress(sink, {.style = ProgressStyle::plain, .every = 40});
  for (int i = 1; i <= 100; ++i) progress.update(step_of(i));
  EXPECT_EQ(sink.text,
            "step 1/100  loss 3.2500  5120 tok/s  device 32 MiB  pinned 1.5 KiB  eta 1:39\n"
            "step 40/100  loss 3.2500  5120 tok/s  device 32 MiB  pinned 1.5 KiB  eta 1:00\n"
            "step 80/100  loss 3.2500  5120 tok/s  device 32 MiB  pinned 1.5 KiB  eta 0:20\n"
            "step 100/100  loss 3.2500  5120 tok/s  device 32 MiB  pinned 1.5 KiB  eta 0:00\n");
}

TEST(ProgressTest, TheBarIsRedrawnInOneLine) {
  TextSink sink;
  {
    Progress progress(sink, {.style = ProgressStyle::bar, .width = 200});
    progress.update(step_of(25));
    progress.update(step_of(50));
  }
  EXPECT_EQ(sink.text,
            "\r[####............] 25/100  eta 1:15  loss 3.2500  5120 tok/s  device 32 MiB  pinned 1.5 KiB"
            "\x1b[K"
            "\r[########........] 50/100  eta 0:50  loss 3.2500  5120 tok/s  device 32 MiB  pinned 1.5 KiB"
            "\x1b[K\n");
}

TEST(ProgressTest, WhatTellsOfTheTaskStandsBesideTheLoss) {
  TextSink sink;
  StepProgress step = step_of(1);
  step.of_task = {{{"reward", 0.25}, {"answer_tokens", 45123}}};
  step.n_of_task = 2;
  step.nvme_bytes = 5u << 20;
  Progress(sink, {.style = ProgressStyle::plain}).update(step);
  EXPECT_THAT(sink.text, HasSubstr("loss 3.2500  reward 0.25  answer_tokens 45.1 k  5120 tok/s"));
  EXPECT_THAT(sink.text, HasSubstr("nvme 5 MiB"));
}

TEST(ProgressTest, TheBarNeverReachesTheLastColumn) {
  TextSink sink;
  Progress progress(sink, {.style = ProgressStyle::bar, .width = 40});
  progress.update(step_of(1));
  EXPECT_EQ(sink.text.size(), 1 + 39 + 3u);  // carriage return, text, clear to end of line
}

TEST(ProgressTest, ColourIsUsedOnlyIfRequested) {
  TextSink plain, coloured;
  Progress(plain, {.style = ProgressStyle::bar}).update(step_of(1));
  Progress(coloured, {.style = ProgressStyle::bar, .colour = true}).update(step_of(1));
  EXPECT_THAT(plain.text, Not(HasSubstr("\x1b[32m")));
  EXPECT_THAT(coloured.text, HasSubstr("\x1b[32m[................]\x1b[0m 1/100"));
}

TEST(ProgressTest, ALineOfItsOwnClearsTheBarFirst) {
  TextSink sink;
  Progress progress(sink, {.style = ProgressStyle::bar});
  progress.update(step_of(1));
  sink.text.clear();
  progress.line("sample");
  progress.finish();
  EXPECT_EQ(sink.text, "\r\x1b[Ksample\n");
}

TEST(ProgressTest, NonePrintsNothing) {
  TextSink sink;
  Progress progress(sink, {.style = ProgressStyle::none});
  progress.update(step_of(1));
  EXPECT_EQ(sink.text, "");
}

TEST(ProgressTest, TheTimeLimitEndsTheEstimate) {
  TextSink sink;
  Progress progress(sink, {.style = ProgressStyle::plain});
  StepProgress step = step_of(10);
  step.max_time_s = 25;
  progress.update(step);
  EXPECT_THAT(sink.text, HasSubstr("eta 0:15\n"));
}

TEST(ProgressTest, AResumedRunIsEstimatedByItsOwnSteps) {
  TextSink sink;
  Progress progress(sink, {.style = ProgressStyle::plain});
  progress.update({.step = 1000, .steps = 1010, .elapsed_s = 20, .first_step = 990});
  EXPECT_THAT(sink.text, HasSubstr("eta 0:20\n"));
}

TEST(ProgressTest, ExtremeValuesAreHandled) {
  TextSink sink;
  Progress bar(sink, {.style = ProgressStyle::bar, .colour = true, .width = -3});
  Progress plain(sink, {.style = ProgressStyle::plain, .every = 0});
  for (const double odd : {std::nan(""), HUGE_VAL, -HUGE_VAL, -1.0, 1e308}) {
    const StepProgress step = {.step = -5,
                               .steps = 0,
                               .loss = odd,
                               .tokens_per_s = odd,
                               .device_bytes = ~0ull,
                               .pinned_bytes = 0,
                               .nvme_bytes = 0,
                               .elapsed_s = odd,
                               .max_time_s = odd};
    bar.update(step);
    plain.update(step);
  }
  EXPECT_THAT(sink.text, HasSubstr("loss nan"));
}

TEST(ProgressTest, UpdatesAllocateNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  TextSink sink;
  Progress bar(sink, {.style = ProgressStyle::bar, .colour = true, .width = 200});
  Progress plain(sink, {.style = ProgressStyle::plain, .every = 1});
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  for (int i = 1; i <= 50; ++i) {
    bar.update(step_of(i));
    plain.update(step_of(i));
  }
  AllocCounter::set_armed(false);
  EXPECT_EQ(AllocCounter::count(), before);
}

TEST(ProgressTest, AutoIsABarOnlyOnATerminalThatCanDrawOne) {
  EXPECT_EQ(progress_style("auto", true, false), ProgressStyle::bar);
  EXPECT_EQ(progress_style("auto", true, true), ProgressStyle::plain);
  EXPECT_EQ(progress_style("auto", false, false), ProgressStyle::plain);
  EXPECT_EQ(progress_style("bar", false, false), ProgressStyle::bar);
  EXPECT_EQ(progress_style("none", true, false), ProgressStyle::none);
}

TEST(ProgressTest, NoColorAndDumbTerminalsAreRespected) {
  const auto options = [](bool terminal, std::vector<std::string> environment) {
    return progress_options("auto", 5, terminal, 120, environment);
  };
  EXPECT_TRUE(options(true, {"TERM=xterm"}).colour);
  EXPECT_FALSE(options(true, {"NO_COLOR=1"}).colour);
  EXPECT_EQ(options(true, {"NO_COLOR=1"}).style, ProgressStyle::bar);
  EXPECT_TRUE(options(true, {"NO_COLOR="}).colour);
  EXPECT_EQ(options(true, {"TERM=dumb"}).style, ProgressStyle::plain);
  EXPECT_FALSE(options(false, {}).colour);
}

}  // namespace
}  // namespace strata::cli

#include <strata/graph/pipeline_schedule.h>

#include <gmock/gmock.h>

#include <strata/runtime/str.h>

#include <strata/runtime/status.h>

namespace strata {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

/// Ranks and micro-batches.
class PipelineSchedules : public ::testing::TestWithParam<std::tuple<std::int32_t, std::int32_t>> {
 protected:
  std::int32_t p() const { return std::get<0>(GetParam()); }
  std::int32_t m() const { return std::get<1>(GetParam()) * p(); }
};

void expect_valid(const PipelineSchedule& schedule) {
  const Status status = check(schedule);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(must(parse_pipeline_schedule(to_text(schedule))), schedule);
}

constexpr StageTicks kTicks = {.forward = 7, .input_gradient = 8, .weight_gradient = 5};
constexpr std::int64_t kAll = kTicks.forward + kTicks.input_gradient + kTicks.weight_gradient;

// Huang et al. 2019.
TEST_P(PipelineSchedules, GpipeIdlesInItsBubbleAndKeepsAllMicroBatches) {
  const PipelineSchedule schedule = must(gpipe(p(), m()));
  expect_valid(schedule);
  EXPECT_THAT(time_pipeline(schedule, kTicks).idle, Each((p() - 1) * kAll));
  for (std::int32_t rank = 0; rank < p(); ++rank) EXPECT_EQ(max_live_micro_batches(schedule, rank), m());
}

// Narayanan et al. 2021: the same bubble, with fewer micro-batches.
TEST_P(PipelineSchedules, OneForwardOneBackwardKeepsOneMicroBatchForEachRankBehind) {
  const PipelineSchedule schedule = must(one_f_one_b(p(), m()));
  expect_valid(schedule);
  EXPECT_THAT(time_pipeline(schedule, kTicks).idle, Each((p() - 1) * kAll));
  for (std::int32_t rank = 0; rank < p(); ++rank)
    EXPECT_EQ(max_live_micro_batches(schedule, rank), std::min(p() - rank, m()));
}

// Each of v stages takes a v-th of the time.
TEST_P(PipelineSchedules, SeveralStagesARankDivideTheBubble) {
  for (const std::int32_t v : {2, 3}) {
    const PipelineSchedule schedule = must(interleaved_one_f_one_b(p(), m(), v));
    expect_valid(schedule);
    EXPECT_THAT(time_pipeline(schedule, kTicks).idle, Each((p() - 1) * kAll));  // the whole is m v kAll
    for (std::int32_t rank = 0; rank < p(); ++rank)
      EXPECT_EQ(max_live_micro_batches(schedule, rank),
                std::min(2 * (p() - rank - 1) + (v - 1) * p() + 1, m() * v));
  }
}

// Lamy-Poirier 2022: each stage's parameters are read twice.
TEST_P(PipelineSchedules, BreadthFirstTurnsToAStageOnceForwardAndOnceBackward) {
  for (const std::int32_t v : {1, 2, 3}) {
    const PipelineSchedule schedule = must(breadth_first(p(), m(), v));
    expect_valid(schedule);
    EXPECT_THAT(time_pipeline(schedule, kTicks).idle, Each((p() - 1) * kAll));
    for (std::int32_t rank = 0; rank < p(); ++rank) {
      EXPECT_EQ(max_live_micro_batches(schedule, rank), m() * v);
      std::int32_t turns = 0;
      const std::vector<StageTask>& tasks = schedule.tasks[static_cast<std::size_t>(rank)];
      for (std::size_t i = 1; i < tasks.size(); ++i)
        turns += tasks[i].virtual_stage != tasks[i - 1].virtual_stage ? 1 : 0;
      EXPECT_EQ(turns, 2 * (v - 1));
    }
  }
}

// Qi et al. 2023: (p - 1)(F + B - W), with what the first rank of 1F1B keeps on every rank. The formula is
// that of equal times: what takes longer is waited for.
TEST_P(PipelineSchedules, WeightGradientsFillTheBubble) {
  const PipelineSchedule schedule = must(zero_bubble_h1(p(), m()));
  expect_valid(schedule);
  EXPECT_THAT(time_pipeline(schedule, {10, 10, 10}).idle, Each((p() - 1) * 10));
  for (std::int32_t rank = 0; rank < p(); ++rank) EXPECT_EQ(max_live_micro_batches(schedule, rank), p());
}
INSTANTIATE_TEST_SUITE_P(Sizes, PipelineSchedules,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8), ::testing::Values(1, 2, 4)));

TEST(PipelineSchedule, ForwardsAloneFillThePipelineOnce) {
  for (const std::int32_t v : {1, 2})
    for (const std::int32_t m : {1, 3, 4, 8}) {
      const PipelineSchedule schedule = must(forward_pipeline(4, m, v));
      expect_valid(schedule);
      EXPECT_GE(time_pipeline(schedule).end, v * m + 3);
      if (m % 4 == 0) {
        EXPECT_EQ(time_pipeline(schedule).end, v * m + 3);
      }
    }
}

TEST(PipelineSchedule, FewMicroBatchesAreFine) {
  for (const std::int32_t m : {1, 2, 3})
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1"})
      expect_valid(must(make_pipeline_schedule(name, 4, m, 1)));
}

std::string refusal(const std::string& text) {
  const auto schedule = parse_pipeline_schedule(text);
  return schedule.has_value() ? std::string() : schedule.status().to_string();
}

TEST(PipelineSchedule, AFileIsATable) {
  const PipelineSchedule schedule =
      must(parse_pipeline_schedule("# two ranks\nF0 F1 B0 B1\n\nF0 I0 W0 F1 B1  # the last\n"));
  EXPECT_EQ(schedule.micro_batches, 2);
  EXPECT_EQ(schedule.ranks(), 2);
  EXPECT_EQ(schedule.tasks[1][2], (StageTask{StageWork::weight_gradient, 0, 0}));
}

TEST(PipelineSchedule, ProblemsOfATableAreNamedAllAtOnce) {
  EXPECT_THAT(refusal("F0 B0\nF0 X0\n"), HasSubstr("line 2: \"X0\" is no task"));
  EXPECT_THAT(refusal("F0/x B0"), HasSubstr("line 1: \"F0/x\" is no task"));
  EXPECT_THAT(refusal("F-1"), HasSubstr("\"F-1\" is no task"));
  const std::string missing = refusal("F0 B0\nF0 F1 B1 B0\n");
  EXPECT_THAT(missing, HasSubstr("rank 0: micro-batch 1 in virtual stage 0 has 0 forwards, 0 backwards"));
  EXPECT_THAT(missing,
              HasSubstr("rank 1: the backward of micro-batch 0 in virtual stage 0 comes after that of "
                        "micro-batch 1"));
  EXPECT_THAT(refusal("F0 F0 B0"), HasSubstr("has 2 forwards"));
  EXPECT_THAT(refusal("F0 I0"), HasSubstr("1 input gradients and 0 weight gradients"));
  EXPECT_THAT(refusal(""), HasSubstr("the schedule has no ranks"));
  const std::string stuck = refusal("F0 B0 F1 B1\nF0 F1 B0 B1\n");
  EXPECT_THAT(stuck,
              HasSubstr("rank 0 waits forever before the backward of micro-batch 0 in virtual stage 0"));
  EXPECT_THAT(stuck, HasSubstr("rank 1 waits forever before the forward of micro-batch 1"));
}

TEST(PipelineSchedule, SizesThatAScheduleCannotHaveAreRefused) {
  EXPECT_THAT(std::string(interleaved_one_f_one_b(4, 6, 2).status().message()),
              HasSubstr("4 ranks with 6 micro-batches, which are no multiple of the ranks"));
  EXPECT_THAT(std::string(gpipe(0, 6).status().message()), HasSubstr("0 ranks"));
  EXPECT_THAT(std::string(make_pipeline_schedule("2f2b", 2, 2, 1).status().message()),
              HasSubstr("there is no schedule 2f2b"));
  EXPECT_THAT(std::string(make_pipeline_schedule("gpipe", 2, 2, 2).status().message()),
              HasSubstr("interleaved and breadth-first have several"));
}

}  // namespace
}  // namespace strata

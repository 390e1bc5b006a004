#include <strata/cpuopt/schedule.h>

#include <gtest/gtest.h>

namespace strata::cpuopt {
namespace {

LrSchedule schedule(ScheduleKind kind) {
  return {.kind = kind, .lr = 1.0, .min_lr = 0.1, .warmup_steps = 10, .total_steps = 110};
}

TEST(ScheduleTest, WarmUpIsLinearAndEndsAtTheRate) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::cosine), 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::cosine), 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::cosine), 10), 1.0);
}

TEST(ScheduleTest, HalfwayDownIsHalfwayBetweenTheRates) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::cosine), 60), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::linear), 60), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::linear), 35), 0.775);
}

TEST(ScheduleTest, TheEndIsTheMinimumAndStays) {
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::cosine), 110), 0.1);
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::linear), 5000), 0.1);
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::constant), 5000), 1.0);
}

TEST(ScheduleTest, WsdKeepsTheRateUntilItsLastSteps) {
  LrSchedule s = schedule(ScheduleKind::wsd);
  s.decay_steps = 20;
  must(validate(s));
  EXPECT_DOUBLE_EQ(learning_rate(s, 5), 0.5);
  EXPECT_EQ(learning_rate(s, 11), 1.0);
  EXPECT_EQ(learning_rate(s, 90), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100), 0.55);
  EXPECT_EQ(learning_rate(s, 110), 0.1);
  s.decay_steps = 101;
  EXPECT_NE(validate(s).message().find("10 warm-up steps and 101 decay steps, but only 110"),
            std::string_view::npos);
}

TEST(ScheduleTest, WarmUpOfTheWholeRunIsLegal) {
  LrSchedule s = schedule(ScheduleKind::linear);
  s.total_steps = 10;
  must(validate(s));
  EXPECT_EQ(learning_rate(s, 9), 0.9);
  EXPECT_EQ(learning_rate(s, 10), 0.1);
}

TEST(ScheduleTest, InvalidSchedulesAreRefusedWithTheNumbers) {
  LrSchedule s = schedule(ScheduleKind::cosine);
  s.warmup_steps = 200;
  EXPECT_NE(validate(s).message().find("200 warm-up steps, but only 110"), std::string_view::npos);
  s = schedule(ScheduleKind::cosine);
  s.min_lr = 2.0;
  EXPECT_EQ(validate(s).code(), Code::invalid);
}

}  // namespace
}  // namespace strata::cpuopt

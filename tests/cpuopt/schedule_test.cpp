#include <strata/cpuopt/schedule.h>

#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
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

// Step s is PyTorch's s - 1: its decay begins behind the warm-up, and is over after the last step.
TEST(ScheduleTest, HalfwayDownIsHalfwayBetweenTheRates) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::cosine), 61), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::linear), 61), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleKind::linear), 36), 0.775);
}

TEST(ScheduleTest, TheMinimumComesAfterTheLastStepAndStays) {
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::cosine), 111), 0.1);
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::linear), 5000), 0.1);
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::constant), 5000), 1.0);
}

std::vector<double> all_rates(const LrSchedule& s) {
  must(validate(s));
  std::vector<double> rates;
  for (std::int64_t step = 1; step <= s.total_steps + 1; ++step) rates.push_back(learning_rate(s, step));
  return rates;
}

// torch's SequentialLR of LinearLR and the decay, with a minimum of 0: no step is trained with 0.
TEST(ScheduleTest, AWholeScheduleHasTheRatesOfPyTorch) {
  LrSchedule s{.lr = 8.0, .min_lr = 0.0, .warmup_steps = 2, .total_steps = 6};
  const auto are = [](std::vector<double> wanted) {
    return ::testing::Pointwise(::testing::DoubleNear(1e-12), std::move(wanted));
  };
  const double high = 4 + 4 * std::sqrt(0.5), low = 4 - 4 * std::sqrt(0.5);
  EXPECT_THAT(all_rates(s), are({4, 8, 8, 8, 8, 8, 8}));
  s.kind = ScheduleKind::linear;
  EXPECT_THAT(all_rates(s), are({4, 8, 8, 6, 4, 2, 0}));
  s.kind = ScheduleKind::cosine;
  EXPECT_THAT(all_rates(s), are({4, 8, 8, high, 4, low, 0}));
  s.kind = ScheduleKind::wsd;
  s.decay_steps = 2;
  EXPECT_THAT(all_rates(s), are({4, 8, 8, 8, 8, 4, 0}));
  s.warmup_steps = 0;
  EXPECT_THAT(all_rates(s), are({8, 8, 8, 8, 8, 4, 0}));
}

TEST(ScheduleTest, WsdKeepsTheRateUntilItsLastSteps) {
  LrSchedule s = schedule(ScheduleKind::wsd);
  s.decay_steps = 20;
  must(validate(s));
  EXPECT_DOUBLE_EQ(learning_rate(s, 5), 0.5);
  EXPECT_EQ(learning_rate(s, 11), 1.0);
  EXPECT_EQ(learning_rate(s, 91), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 101), 0.55);
  EXPECT_EQ(learning_rate(s, 111), 0.1);
  s.decay_steps = 101;
  EXPECT_NE(validate(s).message().find("10 warm-up steps and 101 decay steps, but only 110"),
            std::string_view::npos);
}

TEST(ScheduleTest, AWarmUpOfTheWholeRunRisesUntilItsLastStep) {
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine}) {
    LrSchedule s = schedule(kind);
    s.total_steps = 10;
    must(validate(s));
    EXPECT_EQ(learning_rate(s, 9), 0.9);
    EXPECT_EQ(learning_rate(s, 10), 1.0);
  }
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

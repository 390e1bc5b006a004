#include "training/write_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::cli {
namespace {

// Steps until one is no longer allowed, where the step numbered n writes of(n).
template <class Of>
int steps_under(WriteBudget& budget, std::uint64_t first, const Of& of) {
  std::uint64_t written = first;
  budget.begin(written);
  int steps = 0;
  for (; budget.allows_a_step() && steps < 1000; ++steps) {
    written += of(steps + 1);
    budget.after_step(written);
  }
  return steps;
}

TEST(WriteBudgetTest, StopsWhereTheNextStepAndAnUpdateLeftToSavingWouldPassIt) {
  WriteBudget budget(1000, 100);
  EXPECT_EQ(steps_under(budget, 200, [](int) { return 100; }), 7);
  EXPECT_EQ(budget.to_string(),
            "900 of 1000 bytes of io.write_budget are written, and a step writes up to 100");
}

TEST(WriteBudgetTest, NeverIsMoreWrittenThanTheBudgetWhateverStepsWriteUpToThePlan) {
  for (std::uint64_t bytes = 300; bytes < 1300; bytes += 7) {
    WriteBudget budget(bytes, 100);
    std::uint64_t written = 100;
    steps_under(budget, written, [&](int n) {
      const std::uint64_t step = n <= 2 ? 40 : 100;  // the first leave their update to the next
      written += step;
      return step;
    });
    EXPECT_LE(written + 100, bytes);
    EXPECT_GT(written + 3 * 100, bytes) << "a step more was to be had";
  }
}

TEST(WriteBudgetTest, MeasuredStepsReplaceThePlansBoundAfterThree) {
  WriteBudget budget(10000, 1000);
  budget.begin(0);
  EXPECT_EQ(budget.steps_left(), 9u);
  budget.after_step(10);
  budget.after_step(30);
  EXPECT_EQ(budget.step_bytes(), 1000u);
  budget.after_step(40);
  EXPECT_EQ(budget.step_bytes(), 20u);
  EXPECT_EQ(budget.steps_left(), (10000u - 40 - 20) / 20);
}

TEST(WriteBudgetTest, TheMostThatAnyStepWroteCounts) {
  WriteBudget budget(10000, 1000);
  budget.begin(0);
  std::uint64_t written = 0;
  for (const std::uint64_t step : {10, 10, 10, 500, 10}) budget.after_step(written += step);
  EXPECT_EQ(budget.step_bytes(), 500u);
}

TEST(WriteBudgetTest, WithoutABudgetOrWithoutWritesThereIsNoEnd) {
  WriteBudget unlimited(kUnlimitedBytes, 100);
  EXPECT_EQ(steps_under(unlimited, 1, [](int) { return std::uint64_t{1} << 50; }), 1000);
  EXPECT_FALSE(unlimited.is_limited());
  WriteBudget unused(0, 0);
  EXPECT_EQ(steps_under(unused, 0, [](int) { return 0; }), 1000);
}

}  // namespace
}  // namespace strata::cli

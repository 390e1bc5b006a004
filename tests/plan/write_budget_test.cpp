#include <strata/plan/write_budget.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

// The worst case of a run with 100 home bytes: each step makes 100 bytes dirty, which may stay in RAM for any
// time.
class WorstRun {
 public:
  explicit WorstRun(std::uint64_t budget_bytes) : budget_(budget_bytes, {100, 100}) {}
  /// Runs steps until none is allowed and returns their number. After step n, held(n) dirty bytes are not
  /// written yet.
  template <class Held>
  int steps(const Held& held) {
    budget_.begin(written(held(0)));
    int n = 0;
    for (; budget_.allows_step() && n < 1000; ++n) {
      made_ += 100;
      budget_.after_step(written(held(n + 1)));
    }
    return n;
  }
  std::uint64_t made() const { return made_; }  ///< bytes written once everything is saved
  const WriteBudget& budget() const { return budget_; }

 private:
  std::uint64_t written(std::uint64_t held) const { return made_ - held; }
  std::uint64_t made_ = 100;
  WriteBudget budget_;
};

TEST(WriteBudgetTest, StopsBeforeAStepAndItsSaveCouldExceedTheBudget) {
  WorstRun run(1000);
  EXPECT_EQ(run.steps([](int) { return 0; }), 8);
  EXPECT_EQ(run.budget().to_string(),
            "900 of 1000 bytes of io.write_budget are written; a step and its checkpoint may write 200 more");
}

TEST(WriteBudgetTest, DelayedWritesNeverExceedTheBudget) {
  for (std::uint64_t bytes = 300; bytes < 1300; bytes += 7)
    for (const int period : {1, 2, 3}) {
      WorstRun run(bytes);
      run.steps([=](int n) { return n % period == 0 ? 100 : 40; });
      EXPECT_LE(run.made(), bytes) << "period " << period;
      EXPECT_GT(run.made() + 300, bytes) << "more steps were to be had";
    }
}

TEST(WriteBudgetTest, ActivationsOnNvmeAreWrittenInEveryMicroBatch) {
  RunPlan plan;
  plan.trace.micro_batches = 3;
  plan.programs.push_back({"train", ProgramRole::train, {}});
  plan.programs.back().program.offload.stored = {{0, 4096, "a"}, {1, 8192, "b"}};
  EXPECT_EQ(planned_writes(plan).step_bytes, 3u * 12288u);
  EXPECT_EQ(planned_writes(plan).home_bytes, 0u);
}

TEST(WriteBudgetTest, StepsLeftUseThePlanAndThenThreeMeasuredSteps) {
  WriteBudget budget(10100, {100, 1000});
  budget.begin(0);
  EXPECT_EQ(budget.steps_left(), 10);
  budget.after_step(10);
  budget.after_step(30);
  EXPECT_LT(budget.steps_left(), 10);
  budget.after_step(60);
  EXPECT_EQ(budget.steps_left(), (10100.0 - 60 - 100) / 20);
}

TEST(WriteBudgetTest, WithoutABudgetOrWritesStepsAreUnlimited) {
  EXPECT_EQ(WorstRun(kUnlimitedBytes).steps([](int) { return 0; }), 1000);
  const WriteBudget unused(0, {0, 0});
  EXPECT_FALSE(unused.is_limited());
  EXPECT_TRUE(unused.allows_step());
}

TEST(WriteBudgetTest, AnotherPlanCountsEarlierWrites) {
  WriteBudget budget(1000, {100, 50});
  budget.begin(100);
  budget.after_step(150);
  EXPECT_TRUE(budget.allows_replan({300, 50}))
      << "150 and 100 that saving may write, 300, a step of 50, 300 again";
  EXPECT_FALSE(budget.allows_replan({301, 150}));
  EXPECT_TRUE(budget.allows_replan({0, 0})) << "nothing of it is on nvme";
  budget.begin_plan({300, 50}, 250, 300);
  EXPECT_EQ(budget.to_string(),
            "550 of 1000 bytes of io.write_budget are written; a step and its checkpoint may write 350 more");
  EXPECT_TRUE(budget.allows_step());
  budget.after_step(401);
  EXPECT_FALSE(budget.allows_step());
  EXPECT_TRUE(WriteBudget(kUnlimitedBytes, {100, 50}).allows_replan({1 << 30, 1 << 30}));
}

}  // namespace
}  // namespace strata

// Tests the differences between runs, and whether they mean anything.
#include <gmock/gmock.h>

#include <strata/report/compare_runs.h>
#include <strata/runtime/rng.h>

#include "report/run_fixture.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

RunRecord run_with(const std::vector<double>& step_s) {
  RunRecord run;
  for (std::size_t i = 0; i < step_s.size(); ++i) run.steps.push_back(static_cast<std::int64_t>(i) + 1);
  run.series.push_back({"step_s", step_s});
  return run;
}

/// Steps of about a second, which vary by a tenth, and whose speed drifts slowly.
std::vector<double> noisy(double mean, std::uint64_t seed, std::size_t n) {
  std::vector<double> steps;
  std::uint64_t state = seed;
  double drift = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto uniform = [&] {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
    };
    drift = 0.9 * drift + 0.02 * uniform();
    steps.push_back(mean * (1 + 0.2 * uniform() + drift));
  }
  return steps;
}

TEST(SpeedDifference, IsSignificantWhereItIsLargerThanTheNoise) {
  const SpeedDifference slower = speed_difference(run_with(noisy(1, 1, 400)), run_with(noisy(1.1, 2, 400)));
  EXPECT_NEAR(slower.ratio, 1.1, 0.02);
  EXPECT_TRUE(slower.is_significant());
  EXPECT_LT(slower.low, 1.1);
  EXPECT_GT(slower.high, 1.1);
}

// About five of a hundred pairs of equally fast runs are called different.
TEST(SpeedDifference, IsRarelySignificantWhereThereIsNone) {
  int called = 0;
  for (std::uint64_t pair = 0; pair < 100; ++pair)
    called += speed_difference(run_with(noisy(1, 2 * pair + 11, 300)), run_with(noisy(1, 2 * pair + 12, 300)))
                  .is_significant();
  EXPECT_LE(called, 12);
}

TEST(SpeedDifference, OfAFewStepsIsNotTold) {
  const SpeedDifference few = speed_difference(run_with({1, 1, 1, 1}), run_with({2, 2, 2, 2}));
  EXPECT_LT(few.blocks, 2u);
  EXPECT_FALSE(few.is_significant());
}

TEST(LossDifference, IsTheFirstStepWithOtherBits) {
  RunRecord a = run_with({1, 1, 1, 1}), b = a;
  a.series.push_back({"loss", {4, 3, 2, 1}});
  a.series.push_back({"loss_bits", {4, 3, 2, 1}});
  b.series = a.series;
  EXPECT_EQ(loss_difference(a, b).first_step, -1);
  EXPECT_EQ(loss_difference(a, b).common_steps, 4);
  b.series[1].values[2] = 2.25;
  b.series[2].values[2] = 9;
  EXPECT_EQ(loss_difference(a, b).first_step, 3);
  EXPECT_EQ(loss_difference(a, b).largest, 0.25);
  b.steps = {3, 4, 5, 6};  // resumed later
  EXPECT_EQ(loss_difference(a, b).common_steps, 2);
}

TEST(SettingDifferences, AreTheKeysWithOtherValues) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/a", 2);
  test::write_run(dir.path() + "/b", 2, 0.5, "256");
  const auto found = setting_differences({must(read_run_record(posix_io(), dir.path() + "/a")),
                                          must(read_run_record(posix_io(), dir.path() + "/b"))});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "model.seq");
  EXPECT_THAT(found[0].values, ::testing::ElementsAre("128", "256"));
}

}  // namespace
}  // namespace strata

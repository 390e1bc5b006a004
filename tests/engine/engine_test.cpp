#include <gtest/gtest.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::TinyRun;
using test::tiny_programs;

TEST(EngineTest, TrainingLowersTheLoss) {
  TinyRun run(must(Engine::plan(tiny_programs(false), {})));
  must(run.engine->initialize(1));
  const std::vector<float> losses = run.train(30);
  EXPECT_GT(losses.front(), 3.5f);
  EXPECT_LT(losses.back(), 1.5f);
}

TEST(EngineTest, PlannedPeakIsTheMeasuredPeakInEveryTier) {
  EngineOptions options;
  options.budgets = {600 * kKiB, 400 * kKiB, 4 * kMiB};
  options.grad_accum = 2;
  const test::TempDir dir;
  options.nvme.dirs = {dir.path()};
  TinyRun run(must(Engine::plan(tiny_programs(true), options)));
  must(run.engine->initialize(1));
  run.train(6);
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  for (std::size_t t = 0; t < kTiers; ++t) EXPECT_LE(run.plan->planned_peak[t], options.budgets[t]);
}

}  // namespace
}  // namespace strata

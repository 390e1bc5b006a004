#include <gtest/gtest.h>

#include <strata/runtime/units.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;

TEST(EngineTest, TrainingLowersTheLoss) {
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(1));
  const std::vector<float> losses = run.train(30);
  EXPECT_GT(losses.front(), 3.5f);
  EXPECT_LT(losses.back(), 1.5f);
}

TEST(EngineTest, ValidationIsTheLossOfItsBatchesAndChangesNothing) {
  TinyRun run(must(Engine::plan(tiny_programs(Recompute::full), {})));
  must(run.engine->initialize(1));
  run.train(2);
  const std::string before = must(run.engine->state_digest());
  test::CountingBatches batches(test::tiny_config().vocab);
  const double loss = must(run.engine->evaluate(batches, 4));
  EXPECT_GT(loss, 3.0);
  EXPECT_LT(loss, 4.5);
  EXPECT_EQ(must(run.engine->evaluate(batches, 4)), loss);
  EXPECT_EQ(must(run.engine->state_digest()), before);
}

TEST(EngineTest, InferenceGivesTheLogitsOfOneRow) {
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(1));
  run.train(40);
  std::vector<std::int32_t> tokens(16, 7);
  const std::span<const float> logits = must(run.engine->infer(tokens, 3));
  ASSERT_EQ(logits.size(), 50u);
  EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), 7 * 3 + 1);
  EXPECT_EQ(run.engine->infer(tokens, 16).status().code(), Code::invalid);
}

TEST(EngineTest, PlannedPeakIsTheMeasuredPeakInEveryTier) {
  SessionOptions options;
  options.budgets = {600 * kKiB, 400 * kKiB, 4 * kMiB};
  options.grad_accum = 2;
  const test::TempDir dir;
  options.nvme.dirs = {dir.path()};
  TinyRun run(must(Engine::plan(tiny_programs(Recompute::full), options)));
  must(run.engine->initialize(1));
  run.train(6);
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  for (std::size_t t = 0; t < kTiers; ++t) EXPECT_LE(run.plan->planned_peak[t], options.budgets[t]);
}

// If slabs had the size of the budgets, more than the plan would be resident; this backend has not a byte
// more.
TEST(EngineTest, ARunAllocatesNoMoreThanItsPlannedPeak) {
  for (const std::uint64_t device : {600 * kKiB, 900 * kKiB, 2 * kMiB}) {
    SessionOptions options;
    options.budgets = {device, 2 * kMiB, 4 * kMiB};
    options.policy = PlacementPolicy::pinned;
    options.chunk_elems = 4096;
    const test::TempDir dir;
    options.nvme.dirs = {dir.path()};
    auto plan = must(Engine::plan(tiny_programs(Recompute::full), options));
    const TierBytes planned = plan->planned_peak;
    TinyRun run(
        std::move(plan), 2,
        {.device_bytes = planned[0], .pinned_bytes = planned[1], .schedule = StreamSchedule::latest_legal});
    must(run.engine->initialize(1));
    run.train(3);
    EXPECT_EQ(run.engine->peak_bytes(), planned);
  }
}

}  // namespace
}  // namespace strata

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/session/checkpoint.h>
#include <strata/session/loss_scale.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using testing::HasSubstr;

ProgramSet f16_programs() { return tiny_programs(Recompute::none, 3, test::tiny_config(), DType::f16); }

TEST(LossScaleTest, DoublesAfterAGrowthIntervalWithoutOverflowAndHalvesDownToOne) {
  LossScale scale{.value = 4};
  for (std::int64_t i = 0; i < LossScale::kGrowthInterval - 1; ++i) scale.step_done();
  EXPECT_EQ(scale.value, 4);
  scale.step_done();
  EXPECT_EQ(scale, (LossScale{.value = 8}));
  scale.step_done();
  EXPECT_TRUE(scale.back_off());
  EXPECT_EQ(scale, (LossScale{.value = 4}));
  EXPECT_TRUE(scale.back_off());
  EXPECT_TRUE(scale.back_off());
  EXPECT_EQ(scale.value, 1);
  EXPECT_FALSE(scale.back_off());
  LossScale most{.value = LossScale::kMax, .good_steps = LossScale::kGrowthInterval - 1};
  most.step_done();
  EXPECT_EQ(most.value, LossScale::kMax);
  EXPECT_TRUE(LossScale::is_valid(1) && LossScale::is_valid(65536) && LossScale::is_valid(LossScale::kMax));
  EXPECT_FALSE(LossScale::is_valid(0.5) || LossScale::is_valid(3) ||
               LossScale::is_valid(2 * LossScale::kMax));
}

// An overflow costs nothing but time: the step is retried with the same data and a smaller scale.
TEST(LossScaleTest, AnOverflowingStepIsRetriedAndLeavesNoTrace) {
  TinyRun high(must(Engine::plan(f16_programs(), {.loss_scale = LossScale::kMax})));
  must(high.engine->initialize(3));
  test::CountingBatches batches(test::tiny_config().vocab);
  StepReport report;
  must(high.engine->train_step(batches, 1e-2, report));
  EXPECT_GT(report.overflow_retries, 0);
  EXPECT_EQ(report.loss_scale, std::ldexp(LossScale::kMax, -report.overflow_retries));
  const double settled = report.loss_scale;

  TinyRun low(must(Engine::plan(f16_programs(), {.loss_scale = settled})));
  must(low.engine->initialize(3));
  StepReport again;
  must(low.engine->train_step(batches, 1e-2, again));
  EXPECT_EQ(again.overflow_retries, 0);
  EXPECT_EQ(again.loss, report.loss);
  EXPECT_EQ(again.grad_norm, report.grad_norm);
  EXPECT_EQ(must(low.engine->state_digest()), must(high.engine->state_digest()));
  EXPECT_EQ(low.train(3), high.train(3));
}

TEST(LossScaleTest, TheLossAndItsGradientAreThoseOfF32WithinRounding) {
  TinyRun half(must(Engine::plan(f16_programs(), {}))), full(must(Engine::plan(tiny_programs(), {})));
  for (TinyRun* run : {&half, &full}) must(run->engine->initialize(3));
  test::CountingBatches batches(test::tiny_config().vocab);
  StepReport a, b;
  must(half.engine->train_step(batches, 1e-2, a));
  must(full.engine->train_step(batches, 1e-2, b));
  EXPECT_NEAR(a.loss, b.loss, 2e-3 * b.loss);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-2 * b.grad_norm);
  EXPECT_EQ(b.loss_scale, 1);
}

TEST(LossScaleTest, ACheckpointStoresTheScale) {
  const test::TempDir dir;
  const SessionOptions options{.loss_scale = LossScale::kMax};
  TinyRun run(must(Engine::plan(f16_programs(), options)));
  must(run.engine->initialize(3));
  (void)run.train(2);
  const LossScale scale = run.engine->loss_scale();
  EXPECT_LT(scale.value, LossScale::kMax);
  const std::string saved = must(save_checkpoint(*run.engine, posix_io(), dir.path(), {}, 1));
  const std::vector<float> want = run.train(2);
  TinyRun resumed(must(Engine::plan(f16_programs(), options)));
  must(load_checkpoint(*resumed.engine, posix_io(), saved));
  EXPECT_EQ(resumed.engine->loss_scale(), scale);
  EXPECT_EQ(resumed.train(2), want);
  EXPECT_EQ(must(resumed.engine->state_digest()), must(run.engine->state_digest()));
}

TEST(LossScaleTest, AnInvalidScaleIsRefused) {
  EXPECT_THAT(std::string(Engine::plan(f16_programs(), {.loss_scale = 3}).status().message()),
              HasSubstr("optim.loss_scale is 3; it must be a power of two from 1 to 16777216"));
}

}  // namespace
}  // namespace strata

// Losses of routers change the gradient and not the loss, whatever repeats or interleaves micro-batches.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "engine/execute/central_differences.h"
#include "engine/rank_run.h"

namespace strata {
namespace {

using test::random_values;
using test::TinyRun;
using testing::HasSubstr;

constexpr RouterLosses kLosses = {.aux_coef = 0.5f, .z_coef = 0.125f};

/// The programs of a mixture, whose training has these losses, as a step of so many micro-batches or alone.
ProgramSet programs_of(std::string_view family, const RouterLosses& losses = kLosses,
                       Recompute recompute = Recompute::none, DType compute = DType::f32,
                       std::int32_t together = 1) {
  const DecoderConfig config = test::tiny_of_family(family);
  ProgramSet set = test::unfused_programs(recompute, 3, config, compute);
  Program train = must(derive_backward(
      must(record_decoder(config, 3, DecoderHead::loss, DecoderRows::whole, compute, losses)), "loss"));
  train = recompute_regions(std::move(train), recompute);
  if (together > 1) train = interleave_micro_batches(train, together);
  set[ProgramRole::train] = fuse_add_norm(std::move(train));
  return set;
}

class RouterLossesTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(RouterLossesTest, TheGradientIsTheCentralDifferenceOfTheSumInDouble) {
  const Program forward = must(record_decoder(test::tiny_of_family(GetParam()), 3, DecoderHead::loss,
                                              DecoderRows::whole, DType::f32, kLosses));
  const auto first = test::first_gradients(programs_of(GetParam()), random_values);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(programs_of(GetParam(), kLosses, recompute), random_values).gradients)
        << to_string(recompute);
  test::expect_central_differences(test::forward_of_first_batch(forward), first);
}

TEST_P(RouterLossesTest, TheLossKeepsItsBitsAndTheLossesAreAnOutput) {
  std::vector<float> losses;
  for (const RouterLosses& each : {RouterLosses{}, kLosses}) {
    TinyRun run(must(Engine::plan(programs_of(GetParam(), each), {})));
    must(run.engine->initialize(1));
    must(run.engine->fill(Payload::param, random_values));
    losses.push_back(run.train(1)[0]);
    if (!each.any()) continue;
    const std::span<const float> routers = run.engine->output("train", kRouterLossesOutput, 0);
    ASSERT_EQ(routers.size(), 2u);
    EXPECT_GE(routers[0], 2.0f) << "two experts of each token, evenly";
    EXPECT_LE(routers[0], 6.0f) << "all tokens choose the same of six";
    EXPECT_GT(routers[1], 0.0f);
    EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

// Each micro-batch has losses of its own, and the gradient is the mean over micro-batches.
TEST_P(RouterLossesTest, InterleavedMicroBatchesHaveTheBitsOfSequentialOnes) {
  std::vector<std::string> digests;
  for (const std::int32_t together : {1, 3}) {
    SessionOptions options;
    options.grad_accum = 3;
    TinyRun run(
        must(Engine::plan(programs_of(GetParam(), kLosses, Recompute::full, DType::f32, together), options)));
    must(run.engine->initialize(5));
    run.train(3);
    digests.push_back(must(run.engine->state_digest()));
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// In f16 the loss is scaled by its divisor, which these losses do not have.
TEST_P(RouterLossesTest, TheLossScaleScalesThemToo) {
  const auto gradients = [&](double scale) {
    SessionOptions options{.loss_scale = scale};
    options.clip = 0;
    options.optimizer.beta1 = 0;
    TinyRun run(
        must(Engine::plan(programs_of(GetParam(), {.aux_coef = 4}, Recompute::none, DType::f16), options)));
    must(run.engine->initialize(1));
    must(run.engine->fill(Payload::param, random_values));
    run.train(1);
    return test::states_of(*run.engine, Payload::m).at("layers.1.router.weight");
  };
  const std::vector<float> one = gradients(1), many = gradients(256);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    error += std::pow(static_cast<double>(one[i]) - static_cast<double>(many[i]), 2);
    norm += std::pow(static_cast<double>(one[i]), 2);
  }
  EXPECT_GT(norm, 0);
  EXPECT_LE(std::sqrt(error / norm), 2e-2);
}

TEST_P(RouterLossesTest, RanksOfShardedStatesHaveTheBitsOfOne) {
  std::vector<std::vector<std::uint64_t>> bits;
  for (const std::int32_t ranks : {1, 2}) {
    const test::RankRun run = {.plan =
                                   [&](std::int32_t rank) {
                                     SessionOptions options;
                                     options.grad_accum = 4;
                                     options.ranks = {
                                         .ranks = ranks, .rank = rank, .zero = ranks > 1 ? 3 : 0};
                                     return Engine::plan(programs_of(GetParam()), options);
                                   },
                               .ranks = ranks};
    const test::RankOutcome outcome = run.run([&](Engine& engine, test::RankOutcome& out) -> Status {
      STRATA_TRY(engine.initialize(5));
      test::CountingBatches batches(test::tiny_config().vocab);
      for (int step = 0; step < 3; ++step) {
        StepReport report;
        STRATA_TRY(engine.train_step(batches, 1e-2, report));
        out.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
        out.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
      }
      return {};
    });
    ASSERT_TRUE(outcome.status.is_ok()) << outcome.status.message();
    bits.push_back(outcome.bits);
  }
  EXPECT_EQ(bits[0], bits[1]);
}

INSTANTIATE_TEST_SUITE_P(Families, RouterLossesTest, ::testing::Values("qwen2_moe", "qwen3_moe", "mixtral"),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(RouterLossesRecordTest, AreRefusedWithoutMixturesAndWithoutALoss) {
  const auto problem = [](std::string_view family, DecoderHead head) {
    return std::string(record_decoder(test::tiny_of_family(family), 1, head, DecoderRows::whole, DType::f32,
                                      {.aux_coef = 0.5f})
                           .status()
                           .message());
  };
  EXPECT_THAT(problem("llama", DecoderHead::loss), HasSubstr("llama has no routers with a softmax"));
  EXPECT_THAT(problem("mixtral", DecoderHead::logits), HasSubstr("a program without loss"));
}

}  // namespace
}  // namespace strata

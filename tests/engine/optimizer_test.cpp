#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/cpuopt/optimizer_facts.h>
#include <strata/session/checkpoint.h>
#include <strata/runtime/str.h>

#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using ::testing::ElementsAre;

struct OptimizerCase {
  cpuopt::Optimizer optimizer;
  double momentum;
  StateFormat states;
};
std::vector<OptimizerCase> cases() {
  std::vector<OptimizerCase> all;
  for (const StateFormat states : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8})
    for (const cpuopt::Optimizer optimizer : cpuopt::all_optimizers())
      for (const double momentum : {0.9, 0.0})
        if (momentum > 0 || cpuopt::facts_of(optimizer).momentum)
          all.push_back({optimizer, momentum, states});
  return all;
}
SessionOptions options_of(const OptimizerCase& c) {
  SessionOptions options;
  options.grad_accum = 2;
  options.optimizer = {.optimizer = c.optimizer, .weight_decay = 0.1, .momentum = c.momentum};
  options.states = c.states;
  options.rounding_seed = 3;
  return options;
}

class OptimizerTest : public ::testing::TestWithParam<OptimizerCase> {};

// States on the slow tier, on the device and in RAM go through a checkpoint, which is f32 whatever their
// format.
TEST_P(OptimizerTest, ResumingFromACheckpointGivesTheBitsOfTheUninterruptedRun) {
  const test::TempDir dir;
  SessionOptions spread = options_of(GetParam());
  spread.chunk_elems = 8192;
  spread.nvme.dirs = {dir.path()};
  TinyRun straight(must(Engine::plan(tiny_programs(), options_of(GetParam()))));
  must(straight.engine->initialize(3));
  straight.train(4);

  const auto round_robin_tiers = [](const ChunkLayout& layout, Placement& placement) {
    for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
      for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
        if (layout.has(chunk, payload))
          placement.homes[chunk][static_cast<std::size_t>(payload)] = static_cast<Tier>(chunk % kTiers);
  };
  TinyRun first(must(Engine::plan_with(tiny_programs(Recompute::full), spread, round_robin_tiers)));
  must(first.engine->initialize(3));
  first.train(2);
  const std::string saved = must(save_checkpoint(*first.engine, posix_io(), dir.file("checkpoints"), {}, 0));

  TinyRun second(must(Engine::plan(tiny_programs(), options_of(GetParam()))));
  must(load_checkpoint(*second.engine, posix_io(), saved));
  second.train(2);
  EXPECT_EQ(must(second.engine->state_digest()), must(straight.engine->state_digest()));
}

TEST_P(OptimizerTest, HoldsOnlyTheMomentsThatTheOptimizerHas) {
  const SessionOptions options = options_of(GetParam());
  const auto plan = must(Engine::plan(tiny_programs(), options));
  const cpuopt::MomentSet kept = cpuopt::moments_of(options.optimizer);
  const std::size_t moment = GetParam().states == StateFormat::fp32   ? 4
                             : GetParam().states == StateFormat::bf16 ? 2
                                                                      : 1;
  for (ChunkId chunk = 0; chunk < plan->layout.n_chunks(); ++chunk) {
    const auto n = static_cast<std::size_t>(plan->layout.chunk(chunk).n_elems);
    const std::size_t scales = GetParam().states == StateFormat::int8 ? n / 256 * 4 : 0;
    const std::size_t bytes = (n * moment + scales + 4095) / 4096 * 4096;
    EXPECT_EQ(plan->layout.payload_bytes(chunk, Payload::m), kept.first ? bytes : 0);
    EXPECT_EQ(plan->layout.payload_bytes(chunk, Payload::v), kept.second ? bytes : 0);
  }
  EXPECT_EQ(plan->states().size(), 1u + kept.first + kept.second);
}

// The loss falls only if the update rule moves tensors, and in the right direction. Optimizers differ in the
// rates at which it does so in few steps.
TEST_P(OptimizerTest, LowersTheLossAtSomeRate) {
  const auto lowers_it = [](double rate) {
    TinyRun run(must(Engine::plan(tiny_programs(), options_of(GetParam()))));
    must(run.engine->initialize(3));
    const std::vector<float> losses = run.train(30, rate);
    return losses.back() < losses.front() - 0.3f;
  };
  constexpr double kRates[] = {1e-3, 2e-2, 0.3};
  EXPECT_TRUE(std::any_of(std::begin(kRates), std::end(kRates), lowers_it));
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, ::testing::ValuesIn(cases()), [](const auto& test) {
  const OptimizerCase& c = test.param;
  return str(cpuopt::to_string(c.optimizer), c.momentum > 0 ? "" : "_plain", "_", to_string(c.states));
});

// If the run is to continue after a gradient that is not finite, the step counts but changes no bit of the
// states.
TEST(NonFiniteTest, ASkippedStepCountsAndChangesNoBit) {
  for (const StateFormat states : {StateFormat::fp32, StateFormat::int8}) {
    SessionOptions options = options_of({cpuopt::Optimizer::adamw, 0, states});
    options.non_finite = NonFinite::skip;
    TinyRun run(must(Engine::plan(tiny_programs(), options)));
    must(run.engine->initialize(1));
    run.train(2);
    test::StateTensors good = test::states_of(*run.engine, Payload::param);
    const float kept =
        std::exchange(good.at("layers.1.mlp_in.weight")[7], std::numeric_limits<float>::infinity());
    must(run.engine->fill(Payload::param, test::fill_from(good)));
    const std::string before = must(run.engine->state_digest());
    test::CountingBatches batches(test::tiny_config().vocab);
    StepReport report;
    must(run.engine->train_step(batches, 1e-2, report));
    EXPECT_TRUE(report.skipped);
    EXPECT_THAT(
        report.skip_reason,
        ::testing::EndsWith("is not finite; nothing was updated; the loss of micro-batch 1 is not finite"));
    EXPECT_FALSE(std::isfinite(report.grad_norm));
    EXPECT_EQ(must(run.engine->state_digest()), before);
    EXPECT_EQ(run.engine->steps(), 3);
    good.at("layers.1.mlp_in.weight")[7] = kept;
    must(run.engine->fill(Payload::param, test::fill_from(good)));
    must(run.engine->train_step(batches, 1e-2, report));
    EXPECT_FALSE(report.skipped);
    EXPECT_NE(must(run.engine->state_digest()), before);
  }
}

TEST(NonFiniteTest, AStepThatStopsTheRunIsReportedAsSkippedAndOtherFailuresAreNot) {
  class Ends final : public BatchSource {
   public:
    Status fill(std::int64_t, const BatchView&) override { return Status::error(Code::io_error, "no data"); }
    std::int64_t n_counted(std::int64_t, std::int64_t) override { return 1; }
  };
  TinyRun run(must(Engine::plan(tiny_programs(), {})));
  must(run.engine->initialize(1));
  test::StateTensors states = test::states_of(*run.engine, Payload::param);
  states.begin()->second.front() = std::numeric_limits<float>::infinity();
  must(run.engine->fill(Payload::param, test::fill_from(states)));
  test::CountingBatches batches(test::tiny_config().vocab);
  StepReport report;
  EXPECT_EQ(run.engine->train_step(batches, 1e-2, report).code(), Code::diverged);
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(run.engine->steps(), 0);
  Ends ends;
  EXPECT_EQ(run.engine->train_step(ends, 1e-2, report).code(), Code::io_error);
  EXPECT_FALSE(report.skipped);
}

TEST(OptimizerOptionsTest, WhatIsOutOfRangeIsRefusedBeforeAnythingIsPlanned) {
  SessionOptions options;
  options.optimizer.beta2 = 1.5;
  const Status status = Engine::plan(tiny_programs(), options).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("adamw: beta2 is 1.5"));
}

}  // namespace
}  // namespace strata

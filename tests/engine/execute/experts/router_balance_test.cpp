// A step adds up outputs over its micro-batches on all ranks, and frozen parameters change by them between
// steps: the biases by which routers choose.
#include <gmock/gmock.h>

#include <strata/graph/op_list.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>

#include "engine/execute/frozen_runs.h"
#include "engine/rank_run.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::RankOutcome;
using test::TinyRun;
using testing::HasSubstr;

constexpr std::int32_t kMicroBatches = 4;
constexpr float kRate = 0.125f;
constexpr std::int64_t kExperts = 6;
const std::vector<std::string> kBiases = {"layers.1.router.choice_bias"};

DecoderConfig model() { return test::tiny_of_family("glm4_moe"); }

/// The rows of each mixture are an output.
ProgramSet programs_with_rows(DType compute = DType::f32, std::int32_t together = 1) {
  ProgramSet set = test::tiny_programs(Recompute::none, 3, model(), compute);
  Program forward = must(record_decoder(model(), 3, DecoderHead::loss, DecoderRows::whole, compute));
  for (const Instr& instr : forward.code)
    if (instr.op == Op::route_rows) {
      forward.values[static_cast<std::size_t>(instr.out.front())].name = "rows";
      forward.outputs.push_back(instr.out.front());
    }
  Program train = must(derive_backward(std::move(forward), "loss"));
  if (together > 1) train = interleave_micro_batches(train, together);
  set[ProgramRole::train] = fuse_add_norm(std::move(train));
  return set;
}

SessionOptions balanced_options(StepMode mode = StepMode::automatic) {
  SessionOptions options;
  options.step_mode = mode;
  options.grad_accum = kMicroBatches;
  options.chunk_elems = ChunkLayout::kSliceAlign;
  options.step_sums = {{"rows", kExperts + 1}};
  options.edited = kBiases;
  return options;
}

FillState balance(const Engine& engine) {
  return [&engine](const StatePiece& piece, std::span<float> values) {
    const std::span<const double> offsets = engine.step_sum("rows");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t e = static_cast<std::size_t>(piece.offset) + i;
      const double rows = offsets[e + 1] - offsets[e], mean = offsets[kExperts] / kExperts;
      values[i] += rows < mean ? kRate : rows > mean ? -kRate : 0;
    }
    return Status::ok();
  };
}

Status train_balanced(Engine& engine, RankOutcome& out, int steps = 3) {
  STRATA_TRY(engine.initialize(5));
  CountingBatches batches(test::tiny_config().vocab);
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-2, report));
    for (const double sum : engine.step_sum("rows")) out.bits.push_back(static_cast<std::uint64_t>(sum));
    out.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    STRATA_TRY(engine.edit_params(balance(engine)));
  }
  return test::collect_states(engine, out);
}

TEST(RouterBalanceTest, AStepAddsUpItsMicroBatches) {
  for (const std::int32_t together : {1, kMicroBatches}) {
    TinyRun run(must(Engine::plan(programs_with_rows(DType::bf16, together), balanced_options())));
    must(run.engine->initialize(5));
    run.train(2);
    std::vector<double> sums(static_cast<std::size_t>(kExperts) + 1);
    for (std::int32_t k = 0; k < kMicroBatches; ++k) {
      const std::span<const float> offsets = run.engine->output("train", "rows", k);
      ASSERT_EQ(offsets.size(), sums.size());
      for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += std::bit_cast<std::int32_t>(offsets[e]);
    }
    EXPECT_THAT(run.engine->step_sum("rows"), testing::ElementsAreArray(sums));
    EXPECT_EQ(sums.back(), 2.0 * kMicroBatches * CountingBatches::kTokens);
    EXPECT_TRUE(run.engine->step_sum("row").empty());
  }
}

/// The first micro-batch of a step has no target.
class FirstIsEmpty final : public BatchSource {
 public:
  FirstIsEmpty() {
    batches_.counts = [](std::int64_t index, std::size_t) { return index % kMicroBatches > 0; };
  }
  Status fill(std::int64_t index, const BatchView& batch) override { return batches_.fill(index, batch); }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override { return batches_.n_counted(index, n); }
  std::int64_t n_empty(std::int64_t, std::int64_t) override { return 1; }

 private:
  CountingBatches batches_{test::tiny_config().vocab};
};

// One rank leaves it out, two compute it together with the next one.
TEST(RouterBalanceTest, AMicroBatchWithoutATargetAddsNothingOnAnyNumberOfRanks) {
  for (const std::int32_t ranks : {1, 2}) {
    const test::RankRun run = {.plan =
                                   [&](std::int32_t rank) {
                                     SessionOptions options = balanced_options();
                                     options.ranks = {.ranks = ranks, .rank = rank};
                                     options.chunk_elems *= ranks;
                                     return Engine::plan(programs_with_rows(), options);
                                   },
                               .ranks = ranks};
    const RankOutcome outcome = run.run([](Engine& engine, RankOutcome& out) -> Status {
      STRATA_TRY(engine.initialize(5));
      CountingBatches whole(test::tiny_config().vocab);
      FirstIsEmpty batches;
      StepReport report;
      for (BatchSource* const source :
           {static_cast<BatchSource*>(&whole), static_cast<BatchSource*>(&batches)}) {
        STRATA_TRY(engine.train_step(*source, 1e-2, report));
        out.bits.push_back(static_cast<std::uint64_t>(engine.step_sum("rows").back()));
      }
      return {};
    });
    ASSERT_TRUE(outcome.status.is_ok()) << outcome.status.message();
    EXPECT_THAT(outcome.bits,
                testing::ElementsAre(2 * 4 * CountingBatches::kTokens, 2 * 3 * CountingBatches::kTokens));
  }
}

// Each step moves a bias by the rate, and the next one chooses by it, while the update of what is trained may
// be pending.
TEST(RouterBalanceTest, NoBitDependsOnStepModesTiersOrRanks) {
  const test::TempDir dir;
  const auto run = [&](std::int32_t ranks, std::int32_t zero, StepMode mode,
                       std::optional<test::frozen::Tiers> tiers) {
    const test::RankRun runs = {.plan =
                                    [&](std::int32_t rank) {
                                      SessionOptions options = balanced_options(mode);
                                      options.ranks = {.ranks = ranks, .rank = rank, .zero = zero};
                                      options.chunk_elems *= ranks;
                                      options.nvme.dirs = {dir.path()};
                                      options.nvme.engine = IoEngine::threads;
                                      return Engine::plan_with(
                                          programs_with_rows(DType::bf16), options,
                                          tiers ? [&](const ChunkLayout& layout, Placement& placement) {
                                            test::frozen::assign_homes(*tiers, layout, placement);
                                          } : std::function<void(const ChunkLayout&, Placement&)>());
                                    },
                                .ranks = ranks};
    RankOutcome outcome =
        runs.run([](Engine& engine, RankOutcome& out) { return train_balanced(engine, out); });
    EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.message();
    return outcome;
  };
  const RankOutcome want = run(1, 0, StepMode::serial, {});
  const std::vector<float>& bias = want.states.at("param").at(kBiases.front());
  EXPECT_GT(std::count_if(bias.begin(), bias.end(), [](float each) { return each != 0; }), 0);
  for (const StepMode mode : {StepMode::two_phase, StepMode::speculative, StepMode::hybrid})
    test::expect_same_bits(run(1, 0, mode, {}), want, std::string(to_string(mode)));
  for (const test::frozen::Tiers& tiers : test::frozen::kTiersTried)
    test::expect_same_bits(run(1, 0, StepMode::two_phase, tiers), want, "tiers");
  for (const std::int32_t zero : {0, 2, 3})
    test::expect_same_bits(run(2, zero, StepMode::two_phase, {}), want, str("zero ", zero));
}

TEST(RouterBalanceTest, StepsAndChangesAfterThemAllocateNothing) {
  TinyRun run(must(Engine::plan(programs_with_rows(), balanced_options(StepMode::two_phase))), 2, {});
  must(run.engine->initialize(5));
  CountingBatches batches(test::tiny_config().vocab);
  StepReport report;
  const auto step = [&]() -> Status {
    STRATA_TRY(run.engine->train_step(batches, 1e-2, report));
    return run.engine->edit_params(balance(*run.engine));
  };
  for (int i = 0; i < 2; ++i) must(step());
  const std::uint64_t resources = run.engine->resources_created(), allocations = AllocCounter::count();
  AllocCounter::set_armed(true);
  Status status;
  for (int i = 2; i < 6 && status.is_ok(); ++i) status = step();
  AllocCounter::set_armed(false);
  must(status);
  EXPECT_EQ(AllocCounter::count(), allocations);
  EXPECT_EQ(run.engine->resources_created(), resources);
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
}

TEST(RouterBalanceTest, WhatIsTrainedDoesNotChangeOnSeveralRanks) {
  const test::RankRun run = {.plan =
                                 [&](std::int32_t rank) {
                                   SessionOptions options = balanced_options();
                                   options.ranks = {.ranks = 2, .rank = rank};
                                   options.chunk_elems *= 2;
                                   return Engine::plan(programs_with_rows(), options);
                                 },
                             .ranks = 2};
  const RankOutcome outcome = run.run([](Engine& engine, RankOutcome&) -> Status {
    STRATA_TRY(engine.initialize(5));
    return engine.edit_params(std::vector<std::string>{"tokens.weight"}, balance(engine));
  });
  EXPECT_THAT(std::string(outcome.status.message()),
              HasSubstr("single parameters cannot be changed in a run with 2 ranks"));
}

}  // namespace
}  // namespace strata

// Interleaved micro-batches give the same bits as sequential ones, and move parameters only once.
#include <gtest/gtest.h>

#include <bit>

#include <strata/runtime/str.h>

#include "engine/random_homes.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::TinyRun;

struct InterleaveCase {
  const char* family;
  DType compute;
};

constexpr std::int32_t kBatches = 3;

ProgramSet programs_of(const InterleaveCase& which, bool interleaved, Recompute recompute = Recompute::none,
                       bool offload = false) {
  ProgramSet set = test::unfused_programs(recompute, 3, test::tiny_of_family(which.family), which.compute);
  if (interleaved) set[ProgramRole::train] = interleave_micro_batches(set[ProgramRole::train], kBatches);
  for (Program* program : {&set[ProgramRole::eval], &set[ProgramRole::train], &set[ProgramRole::infer]})
    *program = fuse_add_norm(std::move(*program));
  if (offload)
    set[ProgramRole::train] =
        offload_activations(std::move(set[ProgramRole::train]), {.link_bytes_per_s = 1});
  return set;
}

SessionOptions options_of(const std::string& dir, StepMode mode = StepMode::two_phase) {
  SessionOptions options = test::swapping_options(dir, mode);
  options.grad_accum = kBatches;
  options.undo_bytes = kUnlimited;
  options.optimizer.weight_decay = 0.1;
  return options;
}

struct Outcome {
  std::vector<std::uint64_t> bits;
  std::string digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
Outcome outcome_of(TinyRun& run) {
  must(run.engine->initialize(5));
  test::CountingBatches batches(test::tiny_config().vocab);
  // Micro-batches count different numbers of targets, and one counts none.
  batches.counts = [](std::int64_t index, std::size_t token) {
    return index % 4 != 3 && token % static_cast<std::size_t>(index % 3 + 1) == 0;
  };
  Outcome out;
  for (int step = 0; step < 4; ++step) {
    StepReport report;
    must(run.engine->train_step(batches, 1e-2, report));
    out.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    out.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
  }
  out.digest = must(run.engine->state_digest());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return out;
}

class InterleavedRunTest : public ::testing::TestWithParam<InterleaveCase> {
 protected:
  // Placement 0 is the planner's choice.
  static Outcome run(const ProgramSet& programs, const SessionOptions& options, std::uint64_t placement) {
    const auto homes = [&](const ChunkLayout& layout, Placement& chosen) {
      test::random_homes(placement, layout, chosen);
    };
    TinyRun run(placement == 0 ? must(Engine::plan(programs, options))
                               : must(Engine::plan_with(programs, options, homes)));
    return outcome_of(run);
  }
  const test::TempDir dir_;
};

TEST_P(InterleavedRunTest, HasTheBitsOfSequentialMicroBatches) {
  const Outcome want = run(programs_of(GetParam(), false), options_of(dir_.path()), 0);
  for (const Recompute recompute : kRecomputeModes)
    for (const bool offload : {false, true})
      for (const std::uint64_t seed : {0, 1, 2, 3})
        ASSERT_EQ(run(programs_of(GetParam(), true, recompute, offload), options_of(dir_.path()), seed), want)
            << to_string(recompute) << (offload ? ", activations offloaded" : "") << ", placement " << seed;
}

TEST_P(InterleavedRunTest, InEveryStepMode) {
  const Outcome want = run(programs_of(GetParam(), false), options_of(dir_.path(), StepMode::serial), 0);
  for (const StepMode mode :
       {StepMode::serial, StepMode::two_phase, StepMode::speculative, StepMode::hybrid, StepMode::automatic})
    ASSERT_EQ(run(programs_of(GetParam(), true), options_of(dir_.path(), mode), 2), want) << to_string(mode);
}

TEST_P(InterleavedRunTest, FusedAddNormChangesNoBit) {
  const DecoderConfig config = test::tiny_of_family(GetParam().family);
  for (const Recompute recompute : kRecomputeModes) {
    const ProgramSet apart = test::unfused_programs(recompute, 3, config, GetParam().compute);
    const ProgramSet joined = programs_of(GetParam(), false, recompute);
    ASSERT_LT(joined[ProgramRole::train].code.size(), apart[ProgramRole::train].code.size());
    ASSERT_EQ(run(joined, options_of(dir_.path()), 0), run(apart, options_of(dir_.path()), 0))
        << to_string(recompute);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, InterleavedRunTest,
    ::testing::Values(InterleaveCase{"gpt2", DType::f32}, InterleaveCase{"gpt2", DType::bf16},
                      InterleaveCase{"llama", DType::bf16}, InterleaveCase{"qwen3", DType::f16}),
    [](const auto& test) { return str(test.param.family, "_", to_string(test.param.compute)); });

// The device has room for some layers of a deep model beside its activations. The other layers move again for
// each of several sequential micro-batches, but only once if micro-batches are interleaved.
TEST(InterleavedTrafficTest, ParametersAreCopiedUpOncePerPassAndGradientsDownOnce) {
  const test::TempDir dir;
  DecoderConfig config = test::tiny_of_family("llama");
  config.layers = 12;
  const auto moved = [&](bool interleaved) {
    ProgramSet programs = test::tiny_programs(Recompute::full, 3, config, DType::bf16);
    if (interleaved)
      programs[ProgramRole::train] = interleave_micro_batches(programs[ProgramRole::train], kBatches);
    SessionOptions options = options_of(dir.path());
    options.gradients = GradientPolicy::pinned;
    options.policy = PlacementPolicy::pinned;
    const std::uint64_t chunk = static_cast<std::uint64_t>(options.chunk_elems) * 2;
    options.budgets[0] =
        must(Engine::plan(programs, options))->of(ProgramRole::train).arena_bytes + 16 * chunk;
    TinyRun run(must(Engine::plan(programs, options)));
    must(run.engine->initialize(1));
    run.train(2);
    const MovedBytes before = run.engine->moved();
    run.train(1);
    const MovedBytes after = run.engine->moved();
    return MovedBytes{after.h2d - before.h2d, after.d2h - before.d2h};
  };
  const MovedBytes by_batch = moved(false), interleaved = moved(true);
  EXPECT_LT(2 * interleaved.h2d, by_batch.h2d);
  EXPECT_LT(interleaved.d2h, by_batch.d2h);  // f32 sums once, instead of bf16 gradients three times
}

TEST(InterleavedPlanTest, AProgramOfAnotherNumberOfMicroBatchesIsRefused) {
  SessionOptions options;
  options.grad_accum = 4;
  const Status status = Engine::plan(programs_of({"gpt2", DType::f32}, true), options).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("covers 3 micro-batches, but a step has 4"), std::string_view::npos)
      << status.message();
}

}  // namespace
}  // namespace strata

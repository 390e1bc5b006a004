// Blocks with fp8 GEMMs: they learn, and placement changes no bit.
#include <gtest/gtest.h>

#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>

#include "engine/random_homes.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::TinyRun;

struct Fp8Case {
  const char* family;
  DType compute;
};

ProgramSet fp8_programs(const Fp8Case& which, Recompute recompute, bool interleaved = false,
                        bool offload = false) {
  const DecoderConfig config = test::tiny_of_family(which.family);
  ProgramSet set = test::unfused_programs(Recompute::none, 3, config, which.compute);
  set[ProgramRole::train] = recompute_regions(use_fp8(std::move(set[ProgramRole::train])), recompute);
  if (interleaved) set[ProgramRole::train] = interleave_micro_batches(set[ProgramRole::train], 2);
  for (Program* program : {&set[ProgramRole::eval], &set[ProgramRole::train], &set[ProgramRole::infer]})
    *program = fuse_add_norm(use_fp8(std::move(*program)));
  if (offload)
    set[ProgramRole::train] =
        offload_activations(std::move(set[ProgramRole::train]), {.link_bytes_per_s = 1});
  return set;
}

class Fp8Test : public ::testing::TestWithParam<Fp8Case> {
 protected:
  const test::TempDir dir_;
};

TEST_P(Fp8Test, LearnsAsSixteenBitsDo) {
  const auto losses = [&](const ProgramSet& programs) {
    TinyRun run(must(Engine::plan(programs, {})));
    must(run.engine->initialize(1));
    return run.train(40, 3e-3);
  };
  const std::vector<float> got = losses(fp8_programs(GetParam(), Recompute::none));
  const std::vector<float> want = losses(
      test::tiny_programs(Recompute::none, 3, test::tiny_of_family(GetParam().family), GetParam().compute));
  ASSERT_TRUE(has_op(fp8_programs(GetParam(), Recompute::none)[ProgramRole::train], Op::fp8_gemm));
  EXPECT_NE(got, want);
  EXPECT_LT(want.back(), 0.9f * want.front());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.03f * want[i]) << "step " << i;
}

TEST_P(Fp8Test, NeitherPlacementNorModeNorRecomputationChangesABit) {
  const auto outcome = [&](Recompute recompute, StepMode mode, std::uint64_t placement,
                           bool interleaved = false, bool offload = false) {
    SessionOptions options = test::swapping_options(dir_.path(), mode);
    options.undo_bytes = kUnlimited;
    const auto homes = [&](const ChunkLayout& layout, Placement& chosen) {
      test::random_homes(placement, layout, chosen);
    };
    TinyRun run(
        must(Engine::plan_with(fp8_programs(GetParam(), recompute, interleaved, offload), options, homes)));
    must(run.engine->initialize(5));
    const std::vector<float> losses = run.train(4);
    EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
    return std::pair{losses, must(run.engine->state_digest())};
  };
  const auto want = outcome(Recompute::none, StepMode::serial, 1);
  for (const Recompute recompute : kRecomputeModes)
    for (const std::uint64_t placement : {2, 3, 4})
      ASSERT_EQ(outcome(recompute, StepMode::two_phase, placement), want)
          << to_string(recompute) << ", placement " << placement;
  for (const StepMode mode : {StepMode::speculative, StepMode::hybrid})
    ASSERT_EQ(outcome(Recompute::selective, mode, 5), want) << to_string(mode);
  for (const bool interleaved : {false, true})
    for (const bool offload : {false, true})
      ASSERT_EQ(outcome(Recompute::selective, StepMode::two_phase, 6, interleaved, offload), want)
          << (interleaved ? "by layer" : "") << (offload ? ", offloaded" : "");
}

INSTANTIATE_TEST_SUITE_P(Families, Fp8Test,
                         ::testing::Values(Fp8Case{"gpt2", DType::bf16}, Fp8Case{"llama", DType::bf16},
                                           Fp8Case{"qwen3", DType::f16}),
                         [](const auto& test) {
                           return str(test.param.family, "_", to_string(test.param.compute));
                         });

}  // namespace
}  // namespace strata

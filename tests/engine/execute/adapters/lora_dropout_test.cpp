#include <gtest/gtest.h>

#include <strata/graph/op_list.h>

#include "engine/execute/adapters.h"
#include "engine/execute/central_differences.h"

namespace strata {
namespace {

using test::LowRank;

ProgramSet programs_of(const DecoderConfig& config, LowRank kind, Recompute recompute = Recompute::none) {
  return test::adapted_programs(config, recompute, DType::f32, kernels::WeightFormat::full, kind);
}

class LoraDropoutTest : public ::testing::TestWithParam<LowRank> {};

// The forward in double has the same keys, and drops the same elements.
TEST_P(LoraDropoutTest, EveryGradientIsTheCentralDifferenceOfTheDroppedLossInDouble) {
  for (const std::string_view family : {"gpt2", "llama"}) {
    const DecoderConfig config = test::tiny_of_family(family);
    const ProgramSet programs = programs_of(config, GetParam());
    const auto first = test::first_gradients(programs, test::random_values);
    for (const Recompute recompute : {Recompute::selective, Recompute::full})
      ASSERT_EQ(
          first.gradients,
          test::first_gradients(programs_of(config, GetParam(), recompute), test::random_values).gradients)
          << to_string(recompute);
    const Program forward = test::adapted_program(config, GetParam(), 3, DecoderHead::loss, DType::f32,
                                                  kernels::WeightFormat::full, test::dropout_of(GetParam()));
    test::expect_central_differences(test::forward_of_first_batch(forward), first);
  }
}

TEST_P(LoraDropoutTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  test::expect_bits_of_the_serial_step(GetParam());
}

TEST_P(LoraDropoutTest, OnlyTheTrainingProgramDropsAnythingOut) {
  const ProgramSet programs = programs_of(test::tiny_of_family("llama"), GetParam());
  EXPECT_TRUE(has_op(programs[ProgramRole::train], Op::dropout));
  EXPECT_FALSE(has_op(programs[ProgramRole::eval], Op::dropout));
  EXPECT_FALSE(has_op(programs[ProgramRole::infer], Op::dropout));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LoraDropoutTest,
                         ::testing::Values(LowRank::dropped, LowRank::dropped_dora, LowRank::dropped_pissa),
                         [](const auto& test_case) {
                           return std::string(test_case.param == LowRank::dropped        ? "lora"
                                              : test_case.param == LowRank::dropped_dora ? "dora"
                                                                                         : "pissa");
                         });

class LoraTablesTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  DecoderConfig config() const {
    DecoderConfig made = test::tiny_of_family(GetParam());
    made.logit_softcap = 0;
    return made;
  }
};

TEST_P(LoraTablesTest, GradientsOfEmbeddingsAndHeadsAreCentralDifferences) {
  for (const bool tied : {false, true}) {
    DecoderConfig made = config();
    made.tied_head = tied;
    const ProgramSet programs = programs_of(made, LowRank::tables);
    const auto first = test::first_gradients(programs, test::random_values);
    EXPECT_TRUE(first.gradients.contains("tokens.lora_embedding_A"));
    EXPECT_TRUE(first.gradients.contains(tied ? "tokens.lora_A.1" : "head.lora_A"));
    test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
  }
}

// A of an embedding and B of the head start with zeros.
TEST_P(LoraTablesTest, ANewAdapterOfTablesChangesNoBitOfTheLoss) {
  const auto loss = [&](const ProgramSet& programs) {
    test::TinyRun run(must(Engine::plan(programs, {})));
    must(run.engine->initialize(5));
    return run.train(1)[0];
  };
  EXPECT_NEAR(loss(programs_of(config(), LowRank::tables)), loss(programs_of(config(), LowRank::lora)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, LoraTablesTest,
                         ::testing::Values("gpt2", "llama", "gemma2", "bloom", "opt"),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(LoraTablesStepTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  test::expect_bits_of_the_serial_step(LowRank::tables);
}

TEST(LoraTablesStepTest, AHeadWithASoftCapIsRefused) {
  DecoderConfig config = test::tiny_of_family("gemma2");
  const Program program = must(record_decoder(config, 1, DecoderHead::loss));
  const Status status = add_lora(program, test::adapters_of(config, LowRank::tables)).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("logits with a soft cap"), std::string_view::npos);
}

}  // namespace
}  // namespace strata

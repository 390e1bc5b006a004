#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/execute/central_differences.h"

namespace strata {
namespace {

using test::in_double;
using test::random_values;
using test::tiny_programs;
using test::TinyRun;

void fill(test::CountingBatches& batches, test::reference::Ints& tokens, test::reference::Ints& targets) {
  const std::array<BatchInput, 2> inputs = {{{"tokens", tokens}, {"targets", targets}}};
  must(batches.fill(0, {inputs}));
}

class ModelGradientTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

TEST_P(ModelGradientTest, EveryParametersGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const Program program = tiny_programs(Recompute::none, 3, config)[ProgramRole::eval];
  const test::ForwardReference forward = test::forward_of_first_batch(program);
  const auto first = test::first_gradients(tiny_programs(Recompute::none, 3, config), random_values);
  ASSERT_EQ(first.gradients.size(), program.params.size());
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(tiny_programs(recompute, 3, config), random_values).gradients)
        << to_string(recompute);
  test::expect_central_differences(forward, first);
}

TEST_P(ModelGradientTest, TheLossIsThatOfTheForwardInDouble) {
  const Program program = tiny_programs(Recompute::none, 3, config)[ProgramRole::eval];
  TinyRun run(must(Engine::plan(tiny_programs(Recompute::full, 3, config), {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, random_values));
  const double want =
      test::forward_of_first_batch(program).loss(in_double(test::states_of(*run.engine, Payload::param)));
  EXPECT_NEAR(run.train(1)[0], want, 1e-5 * want);
}

// Rows of 16 tokens hold documents of 5, 9 and 2 tokens; the loss is that of the separate documents.
TEST_P(ModelGradientTest, PackedDocumentsDoNotSeeEachOther) {
  ProgramSet set;
  set[ProgramRole::eval] = must(record_decoder(config, 3, DecoderHead::loss, DecoderRows::packed));
  set[ProgramRole::train] = must(derive_backward(set[ProgramRole::eval], "loss"));
  TinyRun run(must(Engine::plan(set, {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, random_values));
  test::CountingBatches batches(config.vocab);
  for (std::int32_t t = 0; t < 48; ++t) batches.starts.push_back(t % 16 < 5 ? 0 : t % 16 < 14 ? 5 : 14);
  test::reference::Ints tokens(48), targets(48);
  fill(batches, tokens, targets);
  const test::ForwardReference whole(set[ProgramRole::eval], tokens, targets, batches.starts);
  const double want = whole.loss(in_double(test::states_of(*run.engine, Payload::param)));
  StepReport report;
  must(run.engine->train_step(batches, 1e-2, report));
  EXPECT_NEAR(report.loss, want, 1e-5 * want);
  EXPECT_GT(std::abs(want - test::forward_of_first_batch(
                                tiny_programs(Recompute::none, 3, config)[ProgramRole::eval])
                                .loss(in_double(test::states_of(*run.engine, Payload::param)))),
            1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGradientTest, ::testing::ValuesIn(decoder_families()),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace strata

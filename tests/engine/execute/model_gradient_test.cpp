#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/execute/first_gradients.h"
#include "engine/execute/forward_reference.h"

namespace strata {
namespace {

using test::random_values;
using test::tiny_programs;
using test::TinyRun;
using test::reference::Vec;
using Tensors = std::map<std::string, Vec>;

Tensors in_double(const test::StateTensors& states) {
  Tensors tensors;
  for (const auto& [name, values] : states) tensors[name] = Vec(values.begin(), values.end());
  return tensors;
}

void fill(test::CountingBatches& batches, test::reference::Ints& tokens, test::reference::Ints& targets) {
  const std::array<BatchInput, 2> inputs = {{{"tokens", tokens}, {"targets", targets}}};
  must(batches.fill(0, {inputs}));
}

test::ForwardReference oracle(const Program& program) {
  test::reference::Ints tokens(48), targets(48);
  test::CountingBatches batches(test::tiny_config().vocab);
  fill(batches, tokens, targets);
  return {program, tokens, targets};
}

class ModelGradientTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

TEST_P(ModelGradientTest, EveryParametersGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const Program program = tiny_programs(Recompute::none, 3, config)[ProgramRole::eval];
  const test::ForwardReference forward = oracle(program);
  const auto first = test::first_gradients(tiny_programs(Recompute::none, 3, config), random_values);
  ASSERT_EQ(first.gradients.size(), program.params.size());
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(tiny_programs(recompute, 3, config), random_values).gradients)
        << to_string(recompute);
  const Tensors plain = in_double(first.gradients);
  Tensors params = in_double(first.params);
  constexpr double kStep = 1e-5;
  for (const auto& [name, gradient] : plain) {
    const Rng rng(std::hash<std::string>{}(name), 9);
    double error = 0, norm = 0;
    for (std::uint64_t draw = 0; draw < 12; ++draw) {
      const std::size_t i = rng.below(draw, gradient.size());
      const double at = params[name][i];
      params[name][i] = at + kStep;
      const double above = forward.loss(params);
      params[name][i] = at - kStep;
      const double below = forward.loss(params);
      params[name][i] = at;
      const double want = (above - below) / (2 * kStep);
      error += (gradient[i] - want) * (gradient[i] - want);
      norm += want * want;
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(error / norm), 2e-5) << name;
  }
}

TEST_P(ModelGradientTest, TheLossIsThatOfTheForwardInDouble) {
  const Program program = tiny_programs(Recompute::none, 3, config)[ProgramRole::eval];
  TinyRun run(must(Engine::plan(tiny_programs(Recompute::full, 3, config), {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, random_values));
  const double want = oracle(program).loss(in_double(test::states_of(*run.engine, Payload::param)));
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
  EXPECT_GT(std::abs(want - oracle(tiny_programs(Recompute::none, 3, config)[ProgramRole::eval])
                                .loss(in_double(test::states_of(*run.engine, Payload::param)))),
            1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGradientTest, ::testing::ValuesIn(decoder_families()),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace strata

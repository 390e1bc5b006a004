#include <cmath>

#include <gtest/gtest.h>

#include "engine/forward_reference.h"
#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using test::reference::Vec;
using Tensors = std::map<std::string, Vec>;

// Values of a size at which every part of the model matters.
Status lively(const StatePiece& piece, std::span<float> values) {
  const Rng rng(std::hash<std::string_view>{}(piece.name), 3);
  const float mean = piece.name.ends_with("norm.weight") ? 1.0f : 0.0f;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = mean + 0.25f * rng.normal(static_cast<std::uint64_t>(piece.offset) + i);
  return Status::ok();
}

Tensors in_double(const test::StateTensors& states) {
  Tensors tensors;
  for (const auto& [name, values] : states) tensors[name] = Vec(values.begin(), values.end());
  return tensors;
}

// With beta1 = 0, no clipping and one micro-batch, the first moment after the first step is the gradient
// itself.
Tensors gradients_of(const DecoderConfig& config, Recompute recompute, Tensors& params) {
  EngineOptions options;
  options.clip = 0;
  options.adamw.beta1 = 0;
  TinyRun run(must(Engine::plan(tiny_programs(recompute, 3, config), options)));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, lively));
  params = in_double(test::states_of(*run.engine, Payload::param));
  run.train(1);
  return in_double(test::states_of(*run.engine, Payload::m));
}

test::ForwardReference oracle(const Program& program) {
  test::reference::Ints tokens(48), targets(48);
  test::CountingBatches batches(test::tiny_config().vocab);
  must(batches.fill(0, {tokens, targets, {}}));
  return {program, tokens, targets};
}

class ModelGradientTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

TEST_P(ModelGradientTest, EveryParametersGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const Program program = tiny_programs(Recompute::none, 3, config).eval;
  const test::ForwardReference forward = oracle(program);
  Tensors params, again;
  const Tensors plain = gradients_of(config, Recompute::none, params);
  ASSERT_EQ(plain.size(), program.params.size());
  for (const Recompute recompute : {Recompute::selective, Recompute::block})
    ASSERT_EQ(gradients_of(config, recompute, again), plain) << to_string(recompute);
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
  const Program program = tiny_programs(Recompute::none, 3, config).eval;
  TinyRun run(must(Engine::plan(tiny_programs(Recompute::block, 3, config), {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, lively));
  const double want = oracle(program).loss(in_double(test::states_of(*run.engine, Payload::param)));
  EXPECT_NEAR(run.train(1)[0], want, 1e-5 * want);
}

// Rows of 16 with documents of 5, 9 and 2 tokens: the loss is that of the documents by themselves.
TEST_P(ModelGradientTest, PackedDocumentsDoNotSeeEachOther) {
  ProgramSet set;
  set.eval = must(record_decoder(config, 3, DecoderHead::loss, DecoderRows::packed));
  set.train = must(derive_backward(set.eval, "loss"));
  TinyRun run(must(Engine::plan(set, {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, lively));
  test::CountingBatches batches(config.vocab);
  for (std::int32_t t = 0; t < 48; ++t) batches.starts.push_back(t % 16 < 5 ? 0 : t % 16 < 14 ? 5 : 14);
  test::reference::Ints tokens(48), targets(48);
  must(batches.fill(0, {tokens, targets, {}}));
  const test::ForwardReference whole(set.eval, tokens, targets, batches.starts);
  const double want = whole.loss(in_double(test::states_of(*run.engine, Payload::param)));
  StepReport report;
  must(run.engine->train_step(batches, 1e-2, report));
  EXPECT_NEAR(report.loss, want, 1e-5 * want);
  EXPECT_GT(std::abs(want - oracle(tiny_programs(Recompute::none, 3, config).eval)
                                .loss(in_double(test::states_of(*run.engine, Payload::param)))),
            1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGradientTest, ::testing::ValuesIn(decoder_families()),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace strata

#include <algorithm>
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
  ASSERT_EQ(std::ssize(first.gradients),
            std::count_if(program.params.begin(), program.params.end(),
                          [](const ParamInfo& param) { return param.trainable; }));
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(tiny_programs(recompute, 3, config), random_values).gradients)
        << to_string(recompute);
  // What passes through a state is divided by its length three times, which amplifies rounding.
  test::expect_central_differences(forward, first, family_limits(GetParam()).delta ? 5e-5 : 2e-5);
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

// A router of zeros scores all experts alike: of equal ones the first are chosen, and they get all rows. The
// others get gradients of 0, and their update like all. No routing changes the plan.
TEST_P(ModelGradientTest, AllTokensMayChooseTheSameExperts) {
  if (config.experts.n == 0) GTEST_SKIP() << "no experts";
  const auto equal_scores = [](const StatePiece& piece, std::span<float> values) {
    must(random_values(piece, values));
    if (piece.name.find(".router.") != std::string_view::npos) std::fill(values.begin(), values.end(), 0.0f);
    return Status::ok();
  };
  const auto first = test::first_gradients(tiny_programs(Recompute::full, 3, config), equal_scores);
  const auto experts_of = [&](const std::string& name) {
    const std::vector<float>& all = first.gradients.at(name);
    std::vector<bool> has_gradient;
    const auto each = all.size() / static_cast<std::size_t>(config.experts.n);
    for (std::size_t at = 0; at < all.size(); at += each)
      has_gradient.push_back(std::any_of(all.begin() + static_cast<std::ptrdiff_t>(at),
                                         all.begin() + static_cast<std::ptrdiff_t>(at + each),
                                         [](float value) { return value != 0; }));
    return has_gradient;
  };
  EXPECT_EQ(experts_of("layers.1.experts_in.weight"),
            (std::vector<bool>{true, true, false, false, false, false}));
  EXPECT_EQ(experts_of("layers.1.experts_out.weight"),
            (std::vector<bool>{true, true, false, false, false, false}));
  TinyRun run(must(Engine::plan(tiny_programs(Recompute::full, 3, config), {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, equal_scores));
  const auto before = test::states_of(*run.engine, Payload::param);
  const double want =
      test::forward_of_first_batch(tiny_programs(Recompute::none, 3, config)[ProgramRole::eval])
          .loss(in_double(before));
  EXPECT_NEAR(run.train(1)[0], want, 1e-5 * want);
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGradientTest, ::testing::ValuesIn(decoder_families()),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace strata

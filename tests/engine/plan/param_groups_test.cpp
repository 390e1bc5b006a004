#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/states.h"
#include "engine/tiny_run.h"

// Learning rates and weight decay by name: each tensor is updated as in a run in which all tensors have its
// settings.

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using testing::HasSubstr;

SessionOptions options_of(cpuopt::Optimizer optimizer, double weight_decay, std::vector<ParamGroup> groups) {
  SessionOptions options;
  options.optimizer.optimizer = optimizer;
  options.optimizer.momentum = 0.9;  // used by sgd
  options.optimizer.weight_decay = weight_decay;
  options.groups = std::move(groups);
  return options;
}

// The parameters after one step, whose gradient does not depend on the settings.
test::StateTensors after_a_step(const SessionOptions& options, double lr) {
  TinyRun run(must(Engine::plan(tiny_programs(), options)));
  must(run.engine->initialize(3));
  run.train(1, lr);
  return test::states_of(*run.engine, Payload::param);
}

class ParamGroupTest : public ::testing::TestWithParam<cpuopt::Optimizer> {};

TEST_P(ParamGroupTest, ATensorIsUpdatedByTheSettingsOfTheFirstGroupThatMatchesIt) {
  constexpr double kLr = 1e-2;
  const auto plain = after_a_step(options_of(GetParam(), 0.1, {}), kLr);
  const auto half_lr = after_a_step(options_of(GetParam(), 0.1, {}), kLr / 2);
  const auto other_decay = after_a_step(options_of(GetParam(), 0.4, {}), kLr);
  const auto grouped = after_a_step(
      options_of(
          GetParam(), 0.1,
          {{"layers.0.*", 0.5, {}}, {"layers.*.mlp_[io]*.weight", 1, 0.4}, {"tokens.weight", 0.5, {}}}),
      kLr);
  for (const auto& [name, values] : grouped) {
    const bool halved = name.starts_with("layers.0.") || name == "tokens.weight";
    const bool decays = name == "layers.1.mlp_in.weight" || name == "layers.1.mlp_out.weight";
    EXPECT_EQ(values, (halved ? half_lr : decays ? other_decay : plain).at(name)) << name;
  }
  EXPECT_NE(plain.at("layers.0.qkv.weight"), half_lr.at("layers.0.qkv.weight"));
  EXPECT_NE(plain.at("layers.1.mlp_in.weight"), other_decay.at("layers.1.mlp_in.weight"));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ParamGroupTest,
                         ::testing::ValuesIn(cpuopt::all_optimizers().begin(),
                                             cpuopt::all_optimizers().end()),
                         [](const auto& test) { return std::string(cpuopt::to_string(test.param)); });

TEST(ParamGroupsTest, AnExplicitDecayAlsoHoldsForTensorsThatTheModelDoesNotDecay) {
  const auto plain = after_a_step(options_of(cpuopt::Optimizer::adamw, 0.1, {}), 1e-2);
  const auto decayed = after_a_step(options_of(cpuopt::Optimizer::adamw, 0.1, {{"*norm*", 1, 0.1}}), 1e-2);
  for (const auto& [name, values] : decayed)
    EXPECT_EQ(values == plain.at(name), !name.ends_with("norm.weight")) << name;  // shifts are 0
}

TEST(ParamGroupsTest, ALearningRateOfZeroLeavesATensorUnchanged) {
  TinyRun run(must(
      Engine::plan(tiny_programs(), options_of(cpuopt::Optimizer::adamw, 0.1, {{"layers.1.*", 0, {}}}))));
  must(run.engine->initialize(3));
  const auto before = test::states_of(*run.engine, Payload::param);
  run.train(3);
  for (const auto& [name, values] : test::states_of(*run.engine, Payload::param))
    EXPECT_EQ(values == before.at(name), name.starts_with("layers.1.")) << name;
}

TEST(ParamGroupsTest, GroupsWithoutEffectOrOutOfRangeAreRefusedByName) {
  const auto refusal = [](std::vector<ParamGroup> groups) {
    const Status status =
        Engine::plan(tiny_programs(Recompute::none, 3, test::tiny_config(), DType::f32, {"tokens.weight"}),
                     options_of(cpuopt::Optimizer::adamw, 0.1, std::move(groups)))
            .status();
    EXPECT_EQ(status.code(), Code::invalid);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({{"layer.0.*", 1, 0}}), HasSubstr("optim.param_groups: 'layer.0.*' matches none of"));
  EXPECT_THAT(refusal({{"tokens.weight", 1, 0}}), HasSubstr("'tokens.weight' matches no trained parameter"));
  EXPECT_THAT(refusal({{"*", 1, 0}, {"layers.0.*", 2, 0}}),
              HasSubstr("'layers.0.*' matches no trained parameter"));
  EXPECT_THAT(refusal({{"layers.*", -1, 0}}),
              HasSubstr("'layers.*' has lr_scale = -1; it must be at least 0"));
  EXPECT_THAT(refusal({{"layers.*", 1, std::numeric_limits<double>::infinity()}}),
              HasSubstr("weight_decay = inf"));
}

TEST(ParamGroupsTest, EveryParameterMayHaveSettingsOfItsOwn) {
  DecoderConfig config = test::tiny_config();
  config.layers = 3;
  const ProgramSet programs = tiny_programs(Recompute::none, 3, config);
  std::vector<ParamGroup> groups;
  for (const ParamInfo& param : programs[ProgramRole::train].params)
    groups.push_back({param.name, 0.5 + static_cast<double>(groups.size()), {}});
  ASSERT_EQ(groups.size(), 40u);
  const auto plan = must(Engine::plan(programs, options_of(cpuopt::Optimizer::adamw, 0.1, groups)));
  EXPECT_EQ(plan->rules.size(), 40u);
}

}  // namespace
}  // namespace strata

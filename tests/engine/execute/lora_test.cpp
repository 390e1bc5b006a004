#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/execute/adapters.h"
#include "engine/execute/central_differences.h"

namespace strata {
namespace {

using test::adapted_programs;
using test::random_values;
using test::TinyRun;

bool is_adapter(std::string_view name) { return name.find(".lora_") != std::string_view::npos; }

class LoraGradientTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

TEST_P(LoraGradientTest, EveryAdaptersGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const ProgramSet programs = adapted_programs(config);
  const auto first = test::first_gradients(programs, random_values);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(adapted_programs(config, recompute), random_values).gradients)
        << to_string(recompute);
  std::size_t n_adapters = 0;
  for (const ParamInfo& param : programs[ProgramRole::train].params)
    n_adapters += is_adapter(param.name) ? 1 : 0;
  EXPECT_EQ(n_adapters, 2u * 2u * 5u);  // A and B, layers, groups of a layer: two of qkv
  ASSERT_EQ(first.gradients.size(), n_adapters) << "the base has no gradient";
  for (const auto& [name, gradient] : first.gradients) EXPECT_TRUE(is_adapter(name)) << name;
  test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
}

// B starts with zeros, and a parameter behind the base's draws from a stream of its own.
TEST_P(LoraGradientTest, ANewAdapterChangesNoBitOfTheLoss) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto loss = [&](const ProgramSet& programs) {
      TinyRun run(must(Engine::plan(programs, {})));
      must(run.engine->initialize(5));
      return run.train(1)[0];
    };
    EXPECT_EQ(loss(adapted_programs(config, Recompute::none, compute)),
              loss(test::tiny_programs(Recompute::none, 3, config, compute)));
  }
}

TEST_P(LoraGradientTest, AStepChangesEveryAdapterAndLeavesTheBase) {
  TinyRun run(must(Engine::plan(adapted_programs(config, Recompute::full), {})));
  must(run.engine->initialize(5));
  const test::StateTensors before = test::states_of(*run.engine, Payload::param);
  run.train(2);  // A has no gradient before B has changed
  for (const auto& [name, values] : test::states_of(*run.engine, Payload::param))
    EXPECT_EQ(values == before.at(name), !is_adapter(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Families, LoraGradientTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(AddLoraTest, AllProblemsAreReportedAtOnce) {
  const Program program = must(record_decoder(test::tiny_config(), 1, DecoderHead::loss));
  const auto groups = group_lora_modules(std::vector<LoraModule>{{"layers.0.qkv.weight", {0, 32, 65537}, 1},
                                                                 {"layers.9.qkv.weight", {0, 32, 2}, 1},
                                                                 {"layers.0.attn_norm.weight", {0, 32, 2}, 1},
                                                                 {"tokens.weight", {0, 50, 2}, 1},
                                                                 {"layers.1.mlp_out.weight", {0, 32, 0}, 1}});
  const Status status = add_lora(program, groups).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(
                  ::testing::HasSubstr(
                      "layers.0.qkv.weight, rows 0 to 32: the rank is 65537; it must be from 1 to 65536"),
                  ::testing::HasSubstr("layers.9.qkv.weight is no parameter"),
                  ::testing::HasSubstr("layers.0.attn_norm.weight [32] is not the matrix of a linear layer"),
                  ::testing::HasSubstr("tokens.weight [50, 32] is not the matrix of a linear layer"),
                  ::testing::HasSubstr("layers.1.mlp_out.weight, rows 0 to 32: the rank is 0")));
}

}  // namespace
}  // namespace strata

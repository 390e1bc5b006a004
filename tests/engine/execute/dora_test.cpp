#include <gtest/gtest.h>

#include <strata/kernels/dora.h>

#include "engine/execute/adapters.h"
#include "engine/execute/central_differences.h"

namespace strata {
namespace {

using test::TinyRun;
using enum kernels::WeightFormat;

ProgramSet dora_programs(const DecoderConfig& config, Recompute recompute = Recompute::none,
                         DType compute = DType::f32, kernels::WeightFormat base = full) {
  return test::adapted_programs(config, recompute, compute, base, test::LowRank::dora);
}

/// The rows of the parts of `group`, as a run holds them.
std::vector<float> rows_of(const RunPlan& plan, const test::StateTensors& states, const LoraGroup& group,
                           std::int64_t columns) {
  const std::vector<float> values = test::values_of(plan, group.weight, states.at(group.weight));
  std::vector<float> rows;
  for (const LoraPart& part : group.parts.all())
    rows.insert(rows.end(), values.begin() + part.first_row * columns,
                values.begin() + (part.first_row + part.rows) * columns);
  return rows;
}

class DoraRunTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

// The norms are held, as they are constants in backward.
TEST_P(DoraRunTest, EveryGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const ProgramSet programs = dora_programs(config);
  const auto first = test::first_gradients(programs, test::random_values);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(dora_programs(config, recompute), test::random_values).gradients)
        << to_string(recompute);
  EXPECT_EQ(first.gradients.size(), 3u * 2u * 5u);  // A, B and magnitudes, layers, groups of a layer
  test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
}

TEST_P(DoraRunTest, MagnitudesStartAsTheNormsOfTheBasesRows) {
  const auto pool = must(ThreadPool::create(2));
  for (const DType compute : {DType::f32, DType::bf16})
    for (const kernels::WeightFormat base : {full, int8, nf4_dq}) {
      TinyRun run(must(Engine::plan(dora_programs(config, Recompute::none, compute, base), {})));
      must(run.engine->initialize(5));
      const test::StateTensors states = test::states_of(*run.engine, Payload::param);
      for (const LoraGroup& group : test::adapters_of(config, test::LowRank::dora)) {
        const std::vector<float>& found = states.at(group.magnitude);
        const auto columns = static_cast<std::int64_t>(states.at(group.a).size()) / group.ranks();
        std::vector<float> want(found.size());
        kernels::row_norms(rows_of(*run.plan, states, group, columns), columns, compute, want, *pool);
        EXPECT_EQ(found, want) << group.magnitude << " " << to_string(compute) << " " << to_string(base);
      }
    }
}

// m / ||W|| is one then. The bias is added by another op, so sums of 16 bits are rounded once more.
TEST_P(DoraRunTest, ANewAdapterChangesNoBitOfTheLoss) {
  const auto loss = [&](const ProgramSet& programs) {
    TinyRun run(must(Engine::plan(programs, {})));
    must(run.engine->initialize(5));
    return run.train(1)[0];
  };
  for (const kernels::WeightFormat base : {full, nf4})
    EXPECT_EQ(loss(dora_programs(config, Recompute::none, DType::f32, base)),
              loss(test::adapted_programs(config, Recompute::none, DType::f32, base)));
}

TEST_P(DoraRunTest, AStepChangesEveryAdapterAndLeavesTheBase) {
  TinyRun run(must(Engine::plan(dora_programs(config, Recompute::full, DType::bf16), {})));
  must(run.engine->initialize(5));
  const test::StateTensors before = test::states_of(*run.engine, Payload::param);
  run.train(2);  // A has no gradient before B has changed
  for (const auto& [name, values] : test::states_of(*run.engine, Payload::param))
    EXPECT_EQ(values == before.at(name), name.find(".lora_") == std::string::npos) << name;
}

TEST_P(DoraRunTest, TrainsOverAQuantizedBaseAsOverItsDequantizedValues) {
  test::expect_losses_of_the_dequantized_base(config, test::LowRank::dora);
}

INSTANTIATE_TEST_SUITE_P(Families, DoraRunTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(DoraStepTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  test::expect_bits_of_the_serial_step(test::LowRank::dora);
}

}  // namespace
}  // namespace strata

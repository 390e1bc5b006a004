// Matrices trained in subspaces of their gradients: gradients, norms, bases and merging.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/execute/central_differences.h"
#include "engine/execute/subspace_runs.h"

namespace strata {
namespace {

using test::StateTensors;
using test::TinyRun;
using test::subspace::BasisPart;
using test::subspace::groups_of;
using test::subspace::Kind;
using test::subspace::options_of;
using test::subspace::parts_of;
using test::subspace::programs_of;
using testing::HasSubstr;

class SubspaceTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
  const std::vector<LoraGroup> groups = groups_of(config);
};

/// The first step of a run with beta1 = 0, whose first moments are gradients.
struct FirstStep {
  StateTensors gradients;
  StepReport report;
};
FirstStep first_step(TinyRun& run, const StateTensors& params) {
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, test::fill_from(params)));
  test::CountingBatches batches(test::tiny_config().vocab);
  FirstStep first;
  must(run.engine->train_step(batches, 0, first.report));
  first.gradients = test::states_of(*run.engine, Payload::m);
  return first;
}
SessionOptions gradients_as_moments(std::int32_t grad_accum = 1) {
  SessionOptions options = options_of(grad_accum);
  options.clip = 1e30;
  options.optimizer.beta1 = 0;
  return options;
}

// Without clipping no other gradient exists than those of factors and of what is trained whole.
TEST_P(SubspaceTest, EveryGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const ProgramSet programs = programs_of(config, {.clips = false});
  const auto first = test::first_gradients(programs, test::random_values);
  for (const LoraGroup& group : groups) {
    EXPECT_EQ(first.gradients.count(group.weight), 0u);
    EXPECT_EQ(first.gradients.count(group.basis()), 0u);
    EXPECT_EQ(first.gradients.count(group.factor()), 1u) << group.factor();
  }
  test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    EXPECT_EQ(test::first_gradients(programs_of(config, {.recompute = recompute, .clips = false}),
                                    test::random_values)
                  .gradients,
              first.gradients)
        << to_string(recompute);
}

TEST_P(SubspaceTest, AFactorsGradientIsTheProjectedOneAndTheNormThatOfTheWholeGradient) {
  for (const std::int32_t micro_batches : {1, 3}) {
    SCOPED_TRACE(micro_batches);
    const SessionOptions options = gradients_as_moments(micro_batches);
    TinyRun run(must(Engine::plan(programs_of(config, {.micro_batches = micro_batches}), options)));
    const StateTensors start = test::subspace::start_of(groups, *run.plan);
    const FirstStep found = first_step(run, start);
    SessionOptions plain = options;
    plain.groups.clear();
    TinyRun whole(must(Engine::plan(test::tiny_programs(Recompute::none, 3, config), plain)));
    const FirstStep want = first_step(whole, start);
    EXPECT_EQ(found.report.loss, want.report.loss);
    EXPECT_NEAR(found.report.grad_norm / want.report.grad_norm, 1, 1e-6);
    for (const LoraGroup& group : groups) {
      const std::vector<float>& gradient = want.gradients.at(group.weight);
      const auto columns = static_cast<std::int64_t>(start.at(group.a).size()) / group.ranks();
      double error = 0, square = 0, all = 0;
      std::size_t at = 0;
      for (const BasisPart& part : parts_of(group, columns)) {
        all += test::subspace::square_of_rows(gradient, columns, part.part);
        for (const double value :
             test::subspace::projected(gradient, columns, part, start.at(group.basis()))) {
          const double difference = found.gradients.at(group.factor())[at++] - value;
          error += difference * difference;
          square += value * value;
        }
      }
      EXPECT_EQ(at, found.gradients.at(group.factor()).size());
      EXPECT_LE(std::sqrt(error / square), 2e-5) << group.factor();
      const double outside = found.gradients.at(group.outside)[0];
      EXPECT_NEAR(outside / std::sqrt(all - square), 1, 1e-4) << group.outside;
      EXPECT_LT(square, all) << "the basis misses something";
    }
    // Parameters that are trained whole have the same gradient.
    for (const auto& [name, values] : want.gradients)
      if (const auto same = found.gradients.find(name); same != found.gradients.end()) {
        EXPECT_EQ(same->second, values) << name;
      }
  }
}

// The exact basis of a rank captures as much as any of that rank, and the program tells how much.
TEST_P(SubspaceTest, TheRefreshedBasesAreThoseOfTheWholeGradientOfTheStepsMicroBatches) {
  for (const std::int32_t micro_batches : {1, 3}) {
    SCOPED_TRACE(micro_batches);
    const SessionOptions options = gradients_as_moments(micro_batches);
    TinyRun run(must(Engine::plan(programs_of(config, {.micro_batches = micro_batches}), options)));
    const StateTensors start = test::subspace::start_of(groups, *run.plan);
    SessionOptions plain = options;
    plain.groups.clear();
    TinyRun whole(must(Engine::plan(test::tiny_programs(Recompute::none, 3, config), plain)));
    const FirstStep want = first_step(whole, start);
    must(run.engine->initialize(1));
    must(run.engine->fill(Payload::param, test::fill_from(start)));
    const std::string before = must(run.engine->state_digest());
    test::CountingBatches batches(test::tiny_config().vocab);
    StateTensors results;
    must(run.engine->refresh(batches, [&](const StatePiece& piece, std::span<const float> values) {
      EXPECT_EQ(piece.n_elems, static_cast<std::int64_t>(values.size()));
      results[std::string(piece.name)].assign(values.begin(), values.end());
      return Status::ok();
    }));
    EXPECT_EQ(must(run.engine->state_digest()), before) << "a refresh changes no state by itself";
    EXPECT_EQ(results.size(), 2 * groups.size());
    for (const LoraGroup& group : groups) {
      const std::vector<float>& gradient = want.gradients.at(group.weight);
      const auto columns = static_cast<std::int64_t>(start.at(group.a).size()) / group.ranks();
      std::size_t p = 0;
      for (const BasisPart& part : parts_of(group, columns)) {
        const double all = test::subspace::square_of_rows(gradient, columns, part.part);
        const auto energy = [&](const std::vector<float>& basis) {
          return test::subspace::square_of(test::subspace::projected(gradient, columns, part, basis)) / all;
        };
        const double captured = energy(results.at(group.basis()));
        EXPECT_NEAR(captured, results.at(energy_name(group)).at(p++), 1e-4) << group.basis();
        EXPECT_GT(captured, energy(start.at(group.basis()))) << group.basis();
        EXPECT_LE(captured, 1 + 1e-6) << "the vectors are orthonormal";
      }
    }
  }
}

TEST_P(SubspaceTest, MergingMovesTheProductIntoTheMatrixAndChangesNoLoss) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(compute));
    TinyRun run(must(Engine::plan(programs_of(config, {.compute = compute}), options_of())));
    must(run.engine->initialize(5));
    test::CountingBatches batches(test::tiny_config().vocab);
    must(run.engine->renew_bases(batches, groups));
    run.train(3);
    StateTensors before = test::states_of(*run.engine, Payload::param);
    const StateTensors moments = test::states_of(*run.engine, Payload::m);
    const double loss = must(run.engine->evaluate(batches, 2));
    must(run.engine->merge_factors(groups));
    const StateTensors after = test::states_of(*run.engine, Payload::param);
    EXPECT_NEAR(must(run.engine->evaluate(batches, 2)), loss, compute == DType::f32 ? 1e-5 : 2e-2);
    EXPECT_EQ(test::states_of(*run.engine, Payload::m), moments);
    for (const LoraGroup& group : groups) {
      const auto columns = static_cast<std::int64_t>(before.at(group.a).size()) / group.ranks();
      const std::vector<float> a = before.at(group.a), b = before.at(group.b);
      std::vector<float>& matrix = before.at(group.weight);
      std::size_t ranks = 0, elems = 0;
      for (const LoraPart& part : group.parts.all()) {
        for (std::int64_t row = 0; row < part.rows; ++row)
          for (std::int64_t column = 0; column < columns; ++column) {
            float sum = 0;
            for (std::int64_t k = 0; k < part.rank; ++k)
              sum += b[elems + static_cast<std::size_t>(row * part.rank + k)] *
                     a[(ranks + static_cast<std::size_t>(k)) * static_cast<std::size_t>(columns) +
                       static_cast<std::size_t>(column)];
            matrix[static_cast<std::size_t>((part.first_row + row) * columns + column)] += sum;
          }
        ranks += static_cast<std::size_t>(part.rank);
        elems += static_cast<std::size_t>(part.rows * part.rank);
      }
      std::fill(before.at(group.factor()).begin(), before.at(group.factor()).end(), 0.0f);
    }
    EXPECT_EQ(after, before) << "every master has the bits of the sum in the order of the ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SubspaceTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(SubspaceStepTest, AStepChangesFactorsAndWhatIsTrainedWholeAndNothingElse) {
  const DecoderConfig config = test::tiny_of_family("llama");
  TinyRun run(must(Engine::plan(programs_of(config), options_of())));
  must(run.engine->initialize(5));
  test::CountingBatches batches(test::tiny_config().vocab);
  const auto renewed = must(run.engine->renew_bases(batches, groups_of(config)));
  ASSERT_EQ(renewed.size(), groups_of(config).size());
  for (const Engine::RenewedBasis& basis : renewed) {
    EXPECT_FALSE(basis.kept);
    for (const float energy : basis.energy) EXPECT_GT(energy, 0.1f) << basis.name;
  }
  const StateTensors before = test::states_of(*run.engine, Payload::param);
  run.train(1);
  for (const auto& [name, values] : test::states_of(*run.engine, Payload::param)) {
    bool is_still = false;
    for (const LoraGroup& group : groups_of(config))
      is_still = is_still || name == group.weight || name == group.basis() || name == group.outside;
    EXPECT_EQ(values == before.at(name), is_still) << name;
  }
}

// A gradient that is not finite gives no basis.
TEST(SubspaceStepTest, BasesThatAreNotFiniteStopTheRunOrAreSkipped) {
  const DecoderConfig config = test::tiny_of_family("gpt2");
  test::CountingBatches batches(test::tiny_config().vocab);
  for (const NonFinite policy : {NonFinite::stop, NonFinite::skip}) {
    SessionOptions options = options_of();
    options.non_finite = policy;
    TinyRun run(must(Engine::plan(programs_of(config), options)));
    must(run.engine->initialize(5));
    must(run.engine->renew_bases(batches, groups_of(config)));
    must(run.engine->edit_params(std::vector<std::string>{"tokens.weight"},
                                 [](const StatePiece&, std::span<float> values) {
                                   std::fill(values.begin(), values.end(), std::nanf(""));
                                   return Status::ok();
                                 }));
    const std::string before = must(run.engine->state_digest());
    auto renewed = run.engine->renew_bases(batches, groups_of(config));
    if (policy == NonFinite::stop) {
      EXPECT_EQ(renewed.status().code(), Code::diverged);
      EXPECT_THAT(std::string(renewed.status().message()), HasSubstr(".lora_"));
    } else {
      for (const Engine::RenewedBasis& basis : must(std::move(renewed)))
        EXPECT_TRUE(basis.kept) << basis.name;
    }
    EXPECT_EQ(must(run.engine->state_digest()), before);
  }
}

TEST(SubspaceStepTest, GroupsThatTheRunDoesNotHaveAreRefusedAtOnce) {
  const DecoderConfig config = test::tiny_of_family("gpt2");
  TinyRun run(must(Engine::plan(programs_of(config), options_of())));
  must(run.engine->initialize(5));
  test::CountingBatches batches(test::tiny_config().vocab);
  std::vector<LoraGroup> groups = groups_of(config);
  groups[0].trained = LoraTrained::both;
  groups[1].weight = "layers.7.qkv.weight";
  groups[2].a = "nothing";
  groups[3].parts.part[0].rank += 1;
  const Status refused = run.engine->merge_factors(groups);
  EXPECT_EQ(refused.code(), Code::invalid);
  EXPECT_THAT(
      std::string(refused.message()),
      testing::AllOf(HasSubstr(groups[0].weight + ": both factors of the adapter are trained"),
                     HasSubstr("layers.7.qkv.weight is no matrix of this run"),
                     HasSubstr("nothing is no parameter of this run"), HasSubstr(groups[3].b + " has ")));
  groups = groups_of(config);
  groups[0].a = groups[0].b = "nothing";
  EXPECT_THAT(std::string(run.engine->renew_bases(batches, groups).status().message()),
              HasSubstr("nothing is no result of the program that refreshes"));
  TinyRun without(must(Engine::plan(test::tiny_programs(), {})));
  must(without.engine->initialize(5));
  EXPECT_EQ(without.engine->refresh(batches, {}).code(), Code::unsupported);
}

}  // namespace
}  // namespace strata

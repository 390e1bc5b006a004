#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <strata/session/checkpoint.h>
#include <strata/runtime/str.h>

#include "engine/execute/adapters.h"
#include "engine/execute/first_gradients.h"
#include "engine/execute/frozen_runs.h"
#include "engine/states.h"
#include "engine/tiny_run.h"

// Frozen parameters are only read, and everything else is as if they were constants.

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using test::frozen::assign_homes;
using test::frozen::expect_same_bits;
using test::frozen::frozen_of;
using test::frozen::Tiers;
using testing::HasSubstr;

using Patterns = std::vector<std::string>;

// Patterns for the names of gpt2 and llama: the embedding (in gpt2 also the head); the embedding and the
// lower half; all except norms; one weight of the upper half.
const std::vector<Patterns>& freezings() {
  static const std::vector<Patterns> all = {
      {"tokens.weight"},
      {"tokens.weight", "layers.0.*"},
      {"tokens.*", "positions.*", "head.*", "layers.*.qkv.*", "layers.*_out.*", "layers.*_in.*"},
      {"layers.1.mlp_in.weight"}};
  return all;
}

// Not a pattern: all but adapters of every matrix is frozen.
const Patterns kAdapters = {"+ adapters"};

// Drops patterns that match nothing in this family.
Patterns of_model(const Patterns& patterns, const Program& program) {
  Patterns known;
  for (const std::string& pattern : patterns)
    if (match_parameters(program, std::span(&pattern, 1), "").has_value()) known.push_back(pattern);
  return known;
}

ProgramSet programs_of(const char* family, DType compute, const Patterns& freeze,
                       Recompute recompute = Recompute::none) {
  const DecoderConfig config = test::tiny_of_family(family);
  if (freeze == kAdapters) return test::adapted_programs(config, recompute, compute);
  const Program forward = tiny_programs(recompute, 3, config, compute)[ProgramRole::eval];
  return tiny_programs(recompute, 3, config, compute, of_model(freeze, forward));
}

struct Model {
  const char* family;
  DType compute;
};

class FrozenTest : public ::testing::TestWithParam<Model> {};

TEST_P(FrozenTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  std::vector<Patterns> tried = freezings();
  tried.insert(tried.end(), 2, kAdapters);
  // Each is tried in both families and in two dtypes, with and without clipping and accumulation.
  const std::size_t family = GetParam().family == std::string_view("llama") ? 1 : 0;
  const std::size_t dtype = GetParam().compute == DType::bf16 ? 1 : 0;
  for (std::size_t f = (family + dtype) % 2; f < tried.size(); f += 2) {
    const double clip = (f / 2 + dtype) % 2 == 0 ? 0.0 : 1e-4;
    SCOPED_TRACE(str("freezing ", f, ", clip ", clip));
    SessionOptions options;
    options.grad_accum = (f / 2 + family) % 2 == 0 ? 1 : 3;
    options.clip = clip;
    if (f == 3) options.groups = {{"layers.0.*", 0.5, 0.2}, {"*norm*", 2, {}}};
    expect_same_bits(programs_of(GetParam().family, GetParam().compute, tried[f]), options);
  }
}

class FrozenGradientTest : public FrozenTest {};

// model_gradient_test.cpp compares those to central differences of the loss in double precision.
TEST_P(FrozenGradientTest, TheTrainedTensorsHaveTheGradientsThatTheyHaveWhereAllIsTrained) {
  const auto [family, compute] = GetParam();
  const auto all = test::first_gradients(programs_of(family, compute, {}), test::random_values);
  for (const Patterns& freeze : freezings())
    for (const Recompute recompute : kRecomputeModes) {
      const ProgramSet programs = programs_of(family, compute, freeze, recompute);
      const auto some = test::first_gradients(programs, test::random_values);
      EXPECT_EQ(some.params, all.params);  // the masters, including those of frozen tensors
      for (const ParamInfo& param : programs[ProgramRole::train].params) {
        ASSERT_EQ(some.gradients.count(param.name), param.trainable ? 1u : 0u) << param.name;
        if (!param.trainable) continue;
        EXPECT_EQ(some.gradients.at(param.name), all.gradients.at(param.name)) << param.name;
      }
    }
}

const auto model_name = [](const ::testing::TestParamInfo<Model>& test) {
  return str(test.param.family, "_", to_string(test.param.compute));
};
INSTANTIATE_TEST_SUITE_P(Models, FrozenTest,
                         ::testing::Values(Model{"gpt2", DType::f32}, Model{"gpt2", DType::bf16},
                                           Model{"llama", DType::f32}, Model{"llama", DType::bf16},
                                           Model{"llama", DType::f16}),
                         model_name);
// Not in f16, where the first moment is the scaled gradient.
INSTANTIATE_TEST_SUITE_P(Models, FrozenGradientTest,
                         ::testing::Values(Model{"gpt2", DType::f32}, Model{"gpt2", DType::bf16},
                                           Model{"llama", DType::f32}, Model{"llama", DType::bf16}),
                         model_name);

TEST(FrozenPlanTest, TheFreezePatternsOfTheseTestsMatchWhatTheyShould) {
  for (const char* family : {"gpt2", "llama"}) {
    const ProgramSet programs = programs_of(family, DType::f32, freezings()[2]);
    for (const ParamInfo& param : programs[ProgramRole::train].params)
      EXPECT_EQ(param.trainable, param.name.find("norm") != std::string::npos) << param.name;
  }
}

double flops_of(const RunPlan& plan) { return plan.of(ProgramRole::train).uses.pass_flops().all(); }

TEST(FrozenPlanTest, FrozenTensorsHoldOnlyParametersAndCostNoBackward) {
  const auto all = must(Engine::plan(programs_of("llama", DType::bf16, {}), {}));
  const Patterns lower = {"tokens.weight", "layers.0.*"};
  const auto upper = must(Engine::plan(programs_of("llama", DType::bf16, lower), {}));
  EXPECT_EQ(all->n_params(false), 0);
  EXPECT_GT(upper->n_params(false), 0);
  EXPECT_EQ(upper->n_params(true) + upper->n_params(false), all->n_params(true));
  EXPECT_LT(flops_of(*upper), 0.8 * flops_of(*all));
  EXPECT_LT(upper->of(ProgramRole::train).arena_bytes,
            all->of(ProgramRole::train).arena_bytes);  // without the activations of the lower half
  for (ChunkId chunk = 0; chunk < upper->layout.n_chunks(); ++chunk) {
    if (upper->layout.group_of(chunk).trainable) continue;
    const auto n = static_cast<std::size_t>(upper->layout.chunk(chunk).n_elems);
    EXPECT_EQ(upper->layout.payload_bytes(chunk, Payload::param), 2 * n);
    EXPECT_EQ(upper->layout.payload_bytes(chunk, Payload::master), 2 * n);
    for (const Payload none : {Payload::m, Payload::v, Payload::grad, Payload::accum})
      EXPECT_FALSE(upper->layout.has(chunk, none));
    EXPECT_FALSE(upper->undo.covers(chunk));
  }
  EXPECT_THAT(upper->notes, testing::Contains(HasSubstr("frozen: ")));
}

TEST(FrozenPlanTest, AFrozenHeadCostsBackwardOneGemmLess) {
  const auto all = must(Engine::plan(programs_of("llama", DType::f32, {}), {}));
  const auto without = must(Engine::plan(programs_of("llama", DType::f32, {"head.weight"}), {}));
  const DecoderConfig config = test::tiny_of_family("llama");
  EXPECT_EQ(flops_of(*all) - flops_of(*without), 2.0 * 48 * config.hidden * config.vocab);
  // No memory is reserved for the head's gradient.
  EXPECT_LT(without->trace.device_fixed_bytes, all->trace.device_fixed_bytes + 4096);
}

// The bits of a bf16 master beyond the parameter are 2 of 4 bytes, and no step reads them.
TEST(FrozenPlanTest, FrozenMastersCanBeLeftOutAndNothingElseChanges) {
  const ProgramSet programs = programs_of("gpt2", DType::bf16, {"layers.0.*"});
  SessionOptions options;
  const auto held_in = [](const RunPlan& plan) {
    std::size_t bytes = 0;
    for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
      if (!plan.layout.group_of(chunk).trainable)
        for (const Payload payload : kPersistentPayloads) bytes += plan.layout.payload_bytes(chunk, payload);
    return bytes;
  };
  TinyRun whole(must(Engine::plan(programs, options)));
  options.frozen_masters = false;
  TinyRun rounded(must(Engine::plan(programs, options)));
  EXPECT_EQ(held_in(*whole.plan), 2 * held_in(*rounded.plan));
  for (TinyRun* run : {&whole, &rounded}) must(run->engine->initialize(3));
  const test::StateTensors given = frozen_of(whole), kept = frozen_of(rounded);
  EXPECT_NE(given, kept);
  EXPECT_EQ(whole.train(3), rounded.train(3));
  EXPECT_EQ(frozen_of(whole), given);
  EXPECT_EQ(frozen_of(rounded), kept);
  for (const Payload payload : {Payload::m, Payload::v})
    EXPECT_EQ(test::states_of(*whole.engine, payload), test::states_of(*rounded.engine, payload));
}

TEST(FrozenStepTest, TheNormIsThatOfTheTrainedTensorsAlone) {
  SessionOptions options;
  options.clip = 0;
  options.optimizer.beta1 = 0;
  TinyRun run(must(Engine::plan(programs_of("gpt2", DType::f32, {"tokens.weight"}), options)));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, test::random_values));
  test::CountingBatches batches(test::tiny_config().vocab);
  StepReport report;
  must(run.engine->train_step(batches, 1e-2, report));
  double sum = 0;
  for (const auto& [name, gradient] : test::states_of(*run.engine, Payload::m))
    for (const float value : gradient) sum += static_cast<double>(value) * value;
  EXPECT_NEAR(report.grad_norm, std::sqrt(sum), 1e-9 * report.grad_norm);
}

/// Bytes that a step moves; `up` excludes frozen parameters.
struct Traffic {
  std::uint64_t up = 0, frozen = 0, down = sizeof(float);  // the loss
};
Traffic traffic_of(const RunPlan& plan) {
  Traffic traffic;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    const bool trained = plan.layout.group_of(chunk).trainable;
    (trained ? traffic.up : traffic.frozen) += plan.layout.payload_bytes(chunk, Payload::param);
    traffic.down += plan.layout.payload_bytes(chunk, Payload::grad);
  }
  for (const LoweredProgram::Binding& end : plan.of(ProgramRole::train).bindings)
    if (end.is_input)
      traffic.up += static_cast<std::uint64_t>(end.operand.shape.n_elems()) * size_of(end.operand.dtype);
  return traffic;
}

SessionOptions in_ram(StepMode mode) {
  SessionOptions options;
  options.policy = PlacementPolicy::pinned;
  options.step_mode = mode;
  options.undo_bytes = kUnlimited;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  return options;
}

// A frozen parameter never becomes stale, so if the device has room it is copied there only once.
TEST(FrozenStepTest, WithRoomOnTheDeviceAStepMovesOnlyTrainedParameters) {
  for (const StepMode mode : kStepModes) {
    TinyRun run(must(Engine::plan(programs_of("gpt2", DType::bf16, freezings()[1]), in_ram(mode))), 2, {});
    const Traffic traffic = traffic_of(*run.plan);
    must(run.engine->initialize(1));
    run.train(2);
    const MovedBytes before = run.engine->moved();
    run.train(3);
    EXPECT_EQ(run.engine->moved().h2d - before.h2d, 3 * traffic.up) << to_string(mode);
    EXPECT_EQ(run.engine->moved().d2h - before.d2h, 3 * traffic.down) << to_string(mode);
  }
}

// The minimum window holds no chunk from forward to backward.
TEST(FrozenStepTest, StreamedFrozenParametersGoUpInForwardAndBackwardAndNeverDown) {
  for (const StepMode mode : kStepModes) {
    const auto choose = [](const ChunkLayout& layout, Placement& p) { assign_homes(Tiers::ram, layout, p); };
    TinyRun run(
        must(Engine::plan_with(programs_of("gpt2", DType::bf16, {"layers.0.*"}), in_ram(mode), choose)), 2,
        {});
    const Traffic traffic = traffic_of(*run.plan);
    must(run.engine->initialize(1));
    run.train(2);
    const MovedBytes before = run.engine->moved();
    run.train(1);
    EXPECT_GE(run.engine->moved().h2d - before.h2d, traffic.up + traffic.frozen) << to_string(mode);
    EXPECT_EQ(run.engine->moved().d2h - before.d2h, traffic.down) << to_string(mode);
  }
}

TEST(FrozenStepTest, FrozenParametersOnNvmeAreNeverWrittenAfterInitialization) {
  const test::TempDir dir;
  SessionOptions options = test::swapping_options(dir.path(), StepMode::two_phase);
  const auto choose = [](const ChunkLayout& layout, Placement& placement) {
    assign_homes(Tiers::ram, layout, placement);
    for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
      if (!layout.group_of(chunk).trainable) {
        placement.homes[chunk][static_cast<std::size_t>(Payload::param)] = Tier::nvme;
        placement.homes[chunk][static_cast<std::size_t>(Payload::master)] = Tier::nvme;
      }
  };
  TinyRun run(must(Engine::plan_with(programs_of("gpt2", DType::bf16, freezings()[1]), options, choose)));
  std::uint64_t at_home = 0;
  for (ChunkId chunk = 0; chunk < run.plan->layout.n_chunks(); ++chunk)
    for (const Payload payload : kPersistentPayloads)
      if (run.plan->placement.home({chunk, payload}) == Tier::nvme)
        at_home += run.plan->layout.payload_bytes(chunk, payload);
  must(run.engine->initialize(1));
  run.train(4);
  EXPECT_GT(run.engine->moved().nvme_write, 0u);
  EXPECT_LE(run.engine->moved().nvme_write, at_home);     // at most once each
  EXPECT_GE(run.engine->moved().nvme_read, at_home / 2);  // at least every parameter
}

TEST(FrozenCheckpointTest, AResumedRunEqualsTheUninterruptedOne) {
  const test::TempDir dir;
  const ProgramSet programs = programs_of("llama", DType::bf16, freezings()[1]);
  SessionOptions options = test::swapping_options(dir.path(), StepMode::automatic);
  TinyRun first(must(Engine::plan(programs, options)));
  must(first.engine->initialize(2));
  first.train(2);
  const std::string saved = must(save_checkpoint(*first.engine, posix_io(), dir.path() + "/c", {}, 0));
  const std::vector<float> rest = first.train(2);
  TinyRun second(
      must(Engine::plan_with(programs, options, [](const ChunkLayout& layout, Placement& placement) {
        assign_homes(Tiers::all_three, layout, placement);
      })));
  must(load_checkpoint(*second.engine, posix_io(), saved));
  EXPECT_EQ(second.train(2), rest);
  EXPECT_EQ(must(second.engine->state_digest()), must(first.engine->state_digest()));
}

TEST(FrozenCheckpointTest, ARunThatTrainsOtherTensorsCannotResumeFromIt) {
  const test::TempDir dir;
  TinyRun some(must(Engine::plan(programs_of("gpt2", DType::f32, {"tokens.weight"}), {})));
  TinyRun all(must(Engine::plan(programs_of("gpt2", DType::f32, {}), {})));
  for (TinyRun* run : {&some, &all}) must(run->engine->initialize(2));
  const std::string of_some = must(save_checkpoint(*some.engine, posix_io(), dir.path() + "/some", {}, 0));
  const std::string of_all = must(save_checkpoint(*all.engine, posix_io(), dir.path() + "/all", {}, 0));
  const Status lacks = load_checkpoint(*all.engine, posix_io(), of_some).status();
  EXPECT_EQ(lacks.code(), Code::invalid);
  EXPECT_THAT(std::string(lacks.message()), HasSubstr("tokens.weight is missing"));
  const Status more = load_checkpoint(*some.engine, posix_io(), of_all).status();
  EXPECT_THAT(std::string(more.message()), HasSubstr("belongs to a run that trains other parameters"));
}

}  // namespace
}  // namespace strata

// Single parameters are read and changed in place, on any tier and in any format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/execute/frozen_runs.h"
#include "engine/states.h"
#include "engine/tiny_run.h"
#include "support/fault_io.h"

namespace strata {
namespace {

using test::StateTensors;
using test::TinyRun;
using test::frozen::Tiers;
using testing::HasSubstr;

using Names = std::vector<std::string>;

// 2100 rows of tokens take two pieces; layer 0 is frozen.
DecoderConfig with_two_pieces() {
  DecoderConfig config = test::tiny_config();
  config.vocab = 2100;
  return config;
}
ProgramSet half_frozen(DType compute) {
  return test::tiny_programs(Recompute::none, 3, with_two_pieces(), compute, {"layers.0.*"});
}
const Names kEdited = {"tokens.weight", "layers.0.mlp_in.weight", "layers.1.qkv.weight"};

// Exact in every format, and another value than the one before.
Status halve(const StatePiece&, std::span<float> values) {
  for (float& value : values) value *= 0.5f;
  return {};
}

struct EditCase {
  DType compute;
  Tiers tiers;
  bool frozen_masters = true;
  std::int64_t state_run = 0;
};

class StateEditTest : public ::testing::TestWithParam<EditCase> {
 protected:
  TinyRun make_run(StepMode mode = StepMode::serial) const {
    SessionOptions options;
    options.step_mode = mode;
    options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
    options.frozen_masters = GetParam().frozen_masters;
    options.state_run = GetParam().state_run;
    options.nvme.dirs = {dir.path()};
    options.nvme.engine = IoEngine::threads;
    return TinyRun(must(Engine::plan_with(half_frozen(GetParam().compute), options,
                                          [](const ChunkLayout& layout, Placement& placement) {
                                            test::frozen::assign_homes(GetParam().tiers, layout, placement);
                                          })));
  }
  const test::TempDir dir;
};

TEST_P(StateEditTest, OnlyTheNamedTensorsChangeAndTheyKeepAllBits) {
  TinyRun run = make_run();
  must(run.engine->initialize(5));
  run.train(1);
  StateTensors want = test::states_of(*run.engine, Payload::param);
  const StateTensors moments = test::states_of(*run.engine, Payload::m);
  must(run.engine->edit_params(kEdited, halve));
  for (const std::string& name : kEdited)
    for (float& value : want.at(name)) value *= 0.5f;
  EXPECT_EQ(test::states_of(*run.engine, Payload::param), want);
  EXPECT_EQ(test::states_of(*run.engine, Payload::m), moments);
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
}

// Steps read the new values from every copy, in every mode.
TEST_P(StateEditTest, TheNextStepIsThatOfARunThatStartedWithTheNewValues) {
  for (const StepMode mode : kStepModes) {
    TinyRun edited = make_run(mode), filled = make_run();
    must(edited.engine->initialize(5));
    edited.train(2);
    must(edited.engine->edit_params(kEdited, halve));
    must(filled.engine->initialize(5));
    for (const Payload payload : edited.engine->state_plan().states())
      must(filled.engine->fill(payload, test::fill_from(test::states_of(*edited.engine, payload))));
    filled.engine->set_steps(2);
    filled.engine->set_loss_scale(edited.engine->loss_scale());
    EXPECT_EQ(edited.train(2), filled.train(2)) << to_string(mode);
    EXPECT_EQ(must(edited.engine->state_digest()), must(filled.engine->state_digest())) << to_string(mode);
  }
}

TEST_P(StateEditTest, TensorsAreReadByName) {
  TinyRun run = make_run();
  must(run.engine->initialize(5));
  StateTensors found;
  must(run.engine->visit_tensors(Payload::param, kEdited,
                                 [&](const StatePiece& piece, std::span<const float> values) {
                                   std::vector<float>& tensor = found[std::string(piece.name)];
                                   EXPECT_EQ(static_cast<std::size_t>(piece.offset), tensor.size());
                                   tensor.insert(tensor.end(), values.begin(), values.end());
                                   return Status::ok();
                                 }));
  StateTensors want = test::states_of(*run.engine, Payload::param);
  std::erase_if(want, [](const auto& tensor) {
    return std::find(kEdited.begin(), kEdited.end(), tensor.first) == kEdited.end();
  });
  EXPECT_EQ(found, want);
}

TEST_P(StateEditTest, AnErrorBeforeAnythingChangedLeavesTheStatesAndALaterOneLosesThem) {
  TinyRun run = make_run();
  must(run.engine->initialize(5));
  const std::string before = must(run.engine->state_digest());
  const Status why = Status::error(Code::invalid, "no more");
  EXPECT_EQ(run.engine->edit_params(kEdited, [&](const StatePiece&, std::span<float>) { return why; }), why);
  EXPECT_EQ(must(run.engine->state_digest()), before);
  const Status lost = run.engine->edit_params(kEdited, [&](const StatePiece& piece, std::span<float> values) {
    return piece.name == "tokens.weight" ? halve(piece, values) : why;
  });
  EXPECT_EQ(lost.code(), Code::invalid);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("changing parameters was interrupted"));
  EXPECT_EQ(run.engine->state_digest().status(), lost);
  EXPECT_EQ(run.engine->edit_params(kEdited, halve), lost);
  must(run.engine->initialize(5));
  EXPECT_EQ(must(run.engine->state_digest()), before);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, StateEditTest,
    ::testing::Values(EditCase{DType::f32, Tiers::device}, EditCase{DType::bf16, Tiers::device, true, 1024},
                      EditCase{DType::bf16, Tiers::ram}, EditCase{DType::bf16, Tiers::nvme},
                      EditCase{DType::bf16, Tiers::all_three, false}, EditCase{DType::f16, Tiers::hybrid},
                      EditCase{DType::f32, Tiers::all_three, true, 300}));

TEST(StateEditRefusalTest, WhatTheRunDoesNotHoldIsNamed) {
  TinyRun run(must(Engine::plan(half_frozen(DType::bf16), {})));
  must(run.engine->initialize(5));
  const auto read = [](const StatePiece&, std::span<const float>) { return Status::ok(); };
  EXPECT_THAT(
      std::string(run.engine->edit_params(Names{"nothing", "tokens.weight", "nobody"}, halve).message()),
      HasSubstr("this run holds no param of nothing, nobody"));
  EXPECT_THAT(
      std::string(run.engine->visit_tensors(Payload::m, Names{"layers.0.qkv.weight"}, read).message()),
      HasSubstr("this run holds no m of layers.0.qkv.weight"));
  const std::string before = must(run.engine->state_digest());
  must(run.engine->edit_params({}, halve));
  EXPECT_EQ(must(run.engine->state_digest()), before) << "no name is not every name";
}

// A checkpoint would name the digest of values that are no longer there.
TEST(StateEditRefusalTest, AFrozenTensorThatCheckpointsLeaveOutCannotChange) {
  SessionOptions options;
  options.saves_frozen = false;
  TinyRun run(must(Engine::plan(half_frozen(DType::bf16), options)));
  must(run.engine->initialize(5));
  const Status refused = run.engine->edit_params(kEdited, halve);
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("layers.0.mlp_in.weight cannot be changed"));
  must(run.engine->edit_params(Names{"tokens.weight"}, halve));
}

}  // namespace
}  // namespace strata

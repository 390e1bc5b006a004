#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>

#include "engine/steady_steps.h"
#include "engine/tiny_run.h"
#include "support/fault_io.h"

// Offloading activations changes where bytes are, but no bit of a result.

namespace strata {
namespace {

using test::TinyRun;

struct OffloadCase {
  const char* family;
  DType compute;
  std::int32_t grad_accum;
};

// Deep enough that the values of the first layers are unused for a long time.
DecoderConfig deep(std::string_view family) {
  DecoderConfig config = test::tiny_of_family(family);
  config.layers = 6;
  return config;
}

enum class Offloading : std::uint8_t { none, all, half, stored };

ProgramSet programs_of(const OffloadCase& which, Recompute recompute, Offloading offloaded) {
  ProgramSet set = test::tiny_programs(recompute, 3, deep(which.family), which.compute);
  const OffloadOptions options{
      .share = offloaded == Offloading::half ? 0.5 : 1, .link_bytes_per_s = 1, .store_bytes_per_s = 1};
  if (offloaded != Offloading::none)
    set[ProgramRole::train] = offload_activations(std::move(set[ProgramRole::train]), options);
  if (offloaded == Offloading::stored)
    set[ProgramRole::train] = store_activations(std::move(set[ProgramRole::train]), options);
  return set;
}

SessionOptions options_of(const OffloadCase& which, StepMode mode, const std::string& dir) {
  SessionOptions options = test::swapping_options(dir, mode);
  options.grad_accum = which.grad_accum;
  options.undo_bytes = kUnlimited;
  options.optimizer.weight_decay = 0.1;
  return options;
}

// In all_three, parameters stream and computation waits for many copies; in device, only activations move.
enum class Tiers : std::uint8_t { all_three, device };

void assign_homes(Tiers tiers, const ChunkLayout& layout, Placement& placement) {
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      if (layout.has(chunk, payload))
        placement.homes[chunk][static_cast<std::size_t>(payload)] =
            tiers == Tiers::device ? Tier::device : static_cast<Tier>(chunk % kTiers);
}

std::unique_ptr<const RunPlan> plan_of(const OffloadCase& which, Recompute recompute, Offloading offloaded,
                                       StepMode mode, const std::string& dir,
                                       Tiers tiers = Tiers::all_three) {
  return must(Engine::plan_with(
      programs_of(which, recompute, offloaded), options_of(which, mode, dir),
      [&](const ChunkLayout& layout, Placement& placement) { assign_homes(tiers, layout, placement); }));
}

struct Outcome {
  std::vector<std::uint64_t> bits;
  std::string digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome outcome_of(TinyRun& run, int steps) {
  must(run.engine->initialize(5));
  test::CountingBatches batches(test::tiny_config().vocab);
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    must(run.engine->train_step(batches, 1e-2, report));
    out.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    out.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    if (step == 1) must(run.engine->evaluate(batches, 1));  // another program in the same memory
  }
  out.digest = must(run.engine->state_digest());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return out;
}

class ActivationOffloadTest : public ::testing::TestWithParam<OffloadCase> {};

TEST_P(ActivationOffloadTest, GivesTheSameBitsInEveryModeOfRecomputationAndOfTheStep) {
  const test::TempDir dir;
  TinyRun resident(plan_of(GetParam(), Recompute::none, Offloading::none, StepMode::serial, dir.path()));
  const Outcome want = outcome_of(resident, 3);
  for (const Recompute recompute : kRecomputeModes)
    for (const StepMode mode :
         {StepMode::serial, StepMode::two_phase, StepMode::speculative, StepMode::hybrid}) {
      TinyRun run(plan_of(GetParam(), recompute, Offloading::all, mode, dir.path()));
      EXPECT_GT(run.plan->of(ProgramRole::train).offload.n, 0);
      ASSERT_EQ(outcome_of(run, 3), want) << to_string(recompute) << ", " << to_string(mode);
    }
}

TEST_P(ActivationOffloadTest, GivesTheSameBitsWhereNothingElseMoves) {
  const test::TempDir dir;
  TinyRun resident(
      plan_of(GetParam(), Recompute::none, Offloading::none, StepMode::serial, dir.path(), Tiers::device));
  const Outcome want = outcome_of(resident, 3);
  for (const Recompute recompute : kRecomputeModes)
    for (const Offloading offloaded : {Offloading::all, Offloading::half}) {
      TinyRun run(plan_of(GetParam(), recompute, offloaded, StepMode::two_phase, dir.path(), Tiers::device));
      ASSERT_EQ(outcome_of(run, 3), want)
          << to_string(recompute) << (offloaded == Offloading::half ? ", half" : ", all");
    }
}

TEST_P(ActivationOffloadTest, GivesTheSameBitsThroughTheStore) {
  const test::TempDir dir;
  TinyRun resident(plan_of(GetParam(), Recompute::none, Offloading::none, StepMode::serial, dir.path()));
  const Outcome want = outcome_of(resident, 3);
  for (const Recompute recompute : kRecomputeModes)
    for (const Tiers tiers : {Tiers::all_three, Tiers::device}) {
      TinyRun run(plan_of(GetParam(), recompute, Offloading::stored, StepMode::two_phase, dir.path(), tiers));
      EXPECT_FALSE(run.plan->of(ProgramRole::train).offload.stored.empty());
      ASSERT_EQ(outcome_of(run, 3), want) << to_string(recompute);
      TinyRun threads(plan_of(GetParam(), recompute, Offloading::stored, StepMode::hybrid, dir.path(), tiers),
                      2, HostBackendOptions{});
      ASSERT_EQ(outcome_of(threads, 3), want) << to_string(recompute) << " on threads";
    }
}

TEST_P(ActivationOffloadTest, GivesTheSameBitsOnThreadedStreams) {
  const test::TempDir dir;
  TinyRun resident(plan_of(GetParam(), Recompute::none, Offloading::none, StepMode::serial, dir.path()));
  const Outcome want = outcome_of(resident, 6);
  for (const Recompute recompute : kRecomputeModes) {
    TinyRun run(plan_of(GetParam(), recompute, Offloading::all, StepMode::two_phase, dir.path()), 2,
                HostBackendOptions{});
    ASSERT_EQ(outcome_of(run, 6), want) << to_string(recompute);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ActivationOffloadTest,
                         ::testing::Values(OffloadCase{"gpt2", DType::f32, 1},
                                           OffloadCase{"gpt2", DType::bf16, 4},
                                           OffloadCase{"llama", DType::f32, 4},
                                           OffloadCase{"llama", DType::bf16, 1}),
                         [](const auto& test) {
                           const OffloadCase& c = test.param;
                           return str(c.family, "_", to_string(c.compute), "_", c.grad_accum);
                         });

constexpr OffloadCase kOne{"gpt2", DType::f32, 2};

std::uint64_t stored_bytes(const RunPlan& plan) {
  std::uint64_t bytes = 0;
  for (const LoweredProgram::Offload::Stored& stored : plan.of(ProgramRole::train).offload.stored)
    bytes += stored.slot_bytes;
  return bytes;
}

TEST(ActivationOffloadPlanTest, TheDeviceNeedsTheArenaOfTheMemoryPlanAndPinnedMemoryTheRest) {
  const test::TempDir dir;
  for (const Recompute recompute : kRecomputeModes) {
    const auto plan = [&](Offloading offloaded) {
      return plan_of(kOne, recompute, offloaded, StepMode::two_phase, dir.path());
    };
    const auto resident = plan(Offloading::none), offloaded = plan(Offloading::all);
    const MemoryPlan predicted =
        plan_memory(programs_of(kOne, recompute, Offloading::all)[ProgramRole::train]);
    const auto stored = plan(Offloading::stored);
    EXPECT_LT(stored->of(ProgramRole::train).offload.host_bytes, predicted.host_bytes);
    EXPECT_EQ(stored->planned_peak[0], offloaded->planned_peak[0]);
    EXPECT_EQ(stored->planned_peak[1] - resident->planned_peak[1],
              stored->of(ProgramRole::train).offload.host_bytes);
    EXPECT_EQ(stored->planned_peak[2] - resident->planned_peak[2], stored->trace.nvme_fixed_bytes);
    EXPECT_GT(stored->trace.nvme_fixed_bytes, stored_bytes(*stored));  // includes spare slots
    EXPECT_LT(predicted.arena_bytes, resident->of(ProgramRole::train).arena_bytes);
    EXPECT_EQ(offloaded->of(ProgramRole::train).arena_bytes, predicted.arena_bytes);
    EXPECT_EQ(offloaded->of(ProgramRole::train).offload.host_bytes, predicted.host_bytes);
    EXPECT_EQ(offloaded->trace.pinned_fixed_bytes - resident->trace.pinned_fixed_bytes, predicted.host_bytes);
    EXPECT_EQ(resident->trace.device_fixed_bytes - offloaded->trace.device_fixed_bytes,
              resident->of(ProgramRole::train).arena_bytes - predicted.arena_bytes);
    EXPECT_EQ(resident->planned_peak[0] - offloaded->planned_peak[0],
              resident->of(ProgramRole::train).arena_bytes - predicted.arena_bytes);
    EXPECT_EQ(offloaded->planned_peak[1] - resident->planned_peak[1], predicted.host_bytes);
  }
}

// The chunks of this run are on the device; it does three steps of two micro-batches.
TEST(ActivationOffloadPlanTest, EveryMicroBatchMovesOffloadedActivationsOutAndBackOnce) {
  const test::TempDir dir;
  struct Moved {
    std::uint64_t down, up, written, read, offloaded, stored;
  };
  const auto moved = [&](Offloading offloaded) -> Moved {
    TinyRun run(plan_of(kOne, Recompute::none, offloaded, StepMode::serial, dir.path(), Tiers::device));
    must(run.engine->initialize(5));
    const MovedBytes before = run.engine->moved();
    run.train(3);
    const MovedBytes after = run.engine->moved();
    return {after.d2h - before.d2h,
            after.h2d - before.h2d,
            after.nvme_write - before.nvme_write,
            after.nvme_read - before.nvme_read,
            run.plan->of(ProgramRole::train).offload.bytes,
            stored_bytes(*run.plan)};
  };
  const Moved resident = moved(Offloading::none);
  EXPECT_EQ(resident.offloaded + resident.stored + resident.written, 0u);
  for (const Offloading which : {Offloading::all, Offloading::stored}) {
    const Moved offloaded = moved(which);
    EXPECT_GT(offloaded.offloaded, 0u);
    EXPECT_EQ(offloaded.stored > 0, which == Offloading::stored);
    EXPECT_EQ(offloaded.down - resident.down, 3 * 2 * offloaded.offloaded);
    EXPECT_EQ(offloaded.up - resident.up, 3 * 2 * offloaded.offloaded);
    EXPECT_EQ(offloaded.written, 3 * 2 * offloaded.stored);
    EXPECT_EQ(offloaded.read, 3 * 2 * offloaded.stored);
  }
}

TEST(ActivationOffloadPlanTest, StepsThreeToTwelveAllocateAndCreateNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  const test::TempDir dir;
  for (const Offloading offloaded : {Offloading::all, Offloading::stored}) {
    TinyRun run(plan_of(kOne, Recompute::selective, offloaded, StepMode::two_phase, dir.path()), 2,
                HostBackendOptions{});
    test::expect_steady_steps(run);
  }
}

// Everything except activations is on the device, so that only activations are read and written.
struct FaultyRun {
  explicit FaultyRun(const std::string& dir)
      : run(plan_of(kOne, Recompute::none, Offloading::stored, StepMode::serial, dir, Tiers::device), 1,
            {.schedule = StreamSchedule::latest_legal, .check = true}, io) {
    must(run.engine->initialize(3));
    run.train(1);
  }
  Status step() {
    test::CountingBatches batches(test::tiny_config().vocab);
    StepReport report;
    return run.engine->train_step(batches, 1e-2, report);
  }
  test::FaultIo io{posix_io(), 5};
  TinyRun run;
};

TEST(ActivationStoreFaultTest, AnUnreadableActivationFailsTheStepByNameAndTheStepMayBeRetried) {
  const test::TempDir dir;
  FaultyRun straight(dir.path());
  must(straight.step());
  const std::string after = must(straight.run.engine->state_digest());
  for (const auto& [kind, code] :
       {std::pair{test::FaultKind::fail, Code::io_error}, std::pair{test::FaultKind::flip, Code::corrupt}})
    for (const std::uint64_t nth : {1, 4, 11}) {
      FaultyRun faulty(dir.path());
      const std::string before = must(faulty.run.engine->state_digest());
      faulty.io.add({test::IoCall::read, kind, faulty.io.calls(test::IoCall::read) + nth, true});
      const Status status = faulty.step();
      EXPECT_EQ(status.code(), code) << status.message();
      EXPECT_THAT(std::string(status.message()),
                  testing::ContainsRegex("loading activation (embed|layers\\.[0-9])"));
      faulty.io.clear();
      EXPECT_EQ(must(faulty.run.engine->state_digest()), before);
      must(faulty.step());
      EXPECT_EQ(must(faulty.run.engine->state_digest()), after);
    }
}

// A slot that cannot be written is given up, and there is only one spare slot of each size.
TEST(ActivationStoreFaultTest, AnUnwritableActivationFailsTheStepByNameAndTheStatesStay) {
  const test::TempDir dir;
  FaultyRun faulty(dir.path());
  const std::string before = must(faulty.run.engine->state_digest());
  faulty.io.add({test::IoCall::write, test::FaultKind::fail, faulty.io.calls(test::IoCall::write) + 5, true});
  const Status status = faulty.step();
  EXPECT_EQ(status.code(), Code::io_error) << status.message();
  EXPECT_THAT(std::string(status.message()), testing::ContainsRegex("activation (embed|layers\\.[0-9])"));
  faulty.io.clear();
  EXPECT_EQ(must(faulty.run.engine->state_digest()), before);
}

TEST(ActivationStoreFaultTest, AWriteThatFailsOnceUsesTheSpareSlot) {
  const test::TempDir dir;
  FaultyRun straight(dir.path()), faulty(dir.path());
  faulty.io.add(
      {test::IoCall::write, test::FaultKind::fail, faulty.io.calls(test::IoCall::write) + 2, false});
  for (int step = 0; step < 3; ++step) {
    must(straight.step());
    must(faulty.step());
  }
  EXPECT_EQ(must(faulty.run.engine->state_digest()), must(straight.run.engine->state_digest()));
}

TEST(ActivationStoreFaultTest, AReadThatFailsOnceIsRetried) {
  const test::TempDir dir;
  FaultyRun straight(dir.path()), faulty(dir.path());
  must(straight.step());
  faulty.io.add({test::IoCall::read, test::FaultKind::flip, faulty.io.calls(test::IoCall::read) + 3, false});
  must(faulty.step());
  EXPECT_EQ(must(faulty.run.engine->state_digest()), must(straight.run.engine->state_digest()));
}

}  // namespace
}  // namespace strata

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include <strata/runtime/alloc_counter.h>
#include <strata/runtime/str.h>

#include "engine/tiny_run.h"

// Activations that leave the device change where bytes are, and no bit of a result.

namespace strata {
namespace {

using test::TinyRun;

struct Case {
  const char* family;
  DType compute;
  std::int32_t grad_accum;
};

// Deep enough that values of the first layers are long away.
DecoderConfig deep(std::string_view family) {
  DecoderConfig config = test::tiny_of_family(family);
  config.layers = 6;
  return config;
}

enum class Away : std::uint8_t { none, all, half };

ProgramSet programs_of(const Case& which, Recompute recompute, Away away) {
  ProgramSet set = test::tiny_programs(recompute, 3, deep(which.family), which.compute);
  if (away != Away::none)
    set.train = offload_activations(std::move(set.train),
                                    {.share = away == Away::all ? 1 : 0.5, .link_bytes_per_s = 1});
  return set;
}

EngineOptions options_of(const Case& which, StepMode mode, const std::string& dir) {
  EngineOptions options = test::swapping_options(dir, mode);
  options.grad_accum = which.grad_accum;
  options.undo_bytes = kUnlimited;
  options.optimizer.weight_decay = 0.1;
  return options;
}

// Where parameters stream, computing waits for copies all the time; where none does, for activations alone.
enum class Tiers : std::uint8_t { all_three, device };

void give_homes(Tiers tiers, const ChunkLayout& layout, Placement& placement) {
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      if (layout.has(chunk, payload))
        placement.homes[chunk][static_cast<std::size_t>(payload)] =
            tiers == Tiers::device ? Tier::device : static_cast<Tier>(chunk % kTiers);
}

std::unique_ptr<const RunPlan> plan_of(const Case& which, Recompute recompute, Away away, StepMode mode,
                                       const std::string& dir, Tiers tiers = Tiers::all_three) {
  return must(Engine::plan_with(
      programs_of(which, recompute, away), options_of(which, mode, dir),
      [&](const ChunkLayout& layout, Placement& placement) { give_homes(tiers, layout, placement); }));
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
    if (step == 1) must(run.engine->evaluate(batches, 1));  // of another program over the same memory
  }
  out.digest = must(run.engine->state_digest());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return out;
}

class ActivationOffloadTest : public ::testing::TestWithParam<Case> {};

TEST_P(ActivationOffloadTest, GivesTheSameBitsInEveryModeOfRecomputationAndOfTheStep) {
  const test::TempDir dir;
  TinyRun kept(plan_of(GetParam(), Recompute::none, Away::none, StepMode::serial, dir.path()));
  const Outcome want = outcome_of(kept, 3);
  for (const Recompute recompute : kRecomputeModes)
    for (const StepMode mode :
         {StepMode::serial, StepMode::two_phase, StepMode::speculative, StepMode::twin}) {
      TinyRun run(plan_of(GetParam(), recompute, Away::all, mode, dir.path()));
      EXPECT_GT(run.plan->train.offload.n, 0);
      ASSERT_EQ(outcome_of(run, 3), want) << to_string(recompute) << ", " << to_string(mode);
    }
}

TEST_P(ActivationOffloadTest, GivesTheSameBitsWhereNothingElseMoves) {
  const test::TempDir dir;
  TinyRun kept(plan_of(GetParam(), Recompute::none, Away::none, StepMode::serial, dir.path(), Tiers::device));
  const Outcome want = outcome_of(kept, 3);
  for (const Recompute recompute : kRecomputeModes)
    for (const Away away : {Away::all, Away::half}) {
      TinyRun run(plan_of(GetParam(), recompute, away, StepMode::two_phase, dir.path(), Tiers::device));
      ASSERT_EQ(outcome_of(run, 3), want)
          << to_string(recompute) << (away == Away::half ? ", half" : ", all");
    }
}

TEST_P(ActivationOffloadTest, GivesTheSameBitsOnStreamsThatAreThreads) {
  const test::TempDir dir;
  TinyRun kept(plan_of(GetParam(), Recompute::none, Away::none, StepMode::serial, dir.path()));
  const Outcome want = outcome_of(kept, 6);
  for (const Recompute recompute : kRecomputeModes) {
    TinyRun run(plan_of(GetParam(), recompute, Away::all, StepMode::two_phase, dir.path()), 2,
                HostBackendOptions{});
    ASSERT_EQ(outcome_of(run, 6), want) << to_string(recompute);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ActivationOffloadTest,
                         ::testing::Values(Case{"gpt2", DType::f32, 1}, Case{"gpt2", DType::bf16, 4},
                                           Case{"llama", DType::f32, 4}, Case{"llama", DType::bf16, 1},
                                           Case{"gpt2", DType::f32, 4}, Case{"gpt2", DType::bf16, 1},
                                           Case{"llama", DType::f32, 1}, Case{"llama", DType::bf16, 4}),
                         [](const auto& test) {
                           const Case& c = test.param;
                           return str(c.family, "_", to_string(c.compute), "_", c.grad_accum);
                         });

constexpr Case kOne{"gpt2", DType::f32, 2};

TEST(ActivationOffloadPlanTest, TheDeviceNeedsWhatTheProgramsPlanSaysAndPinnedMemoryTheRest) {
  const test::TempDir dir;
  for (const Recompute recompute : kRecomputeModes) {
    const auto plan = [&](Away away) {
      return plan_of(kOne, recompute, away, StepMode::two_phase, dir.path());
    };
    const auto kept = plan(Away::none), away = plan(Away::all);
    const MemoryPlan predicted = plan_memory(programs_of(kOne, recompute, Away::all).train);
    EXPECT_LT(predicted.arena_bytes, kept->train.arena_bytes);
    EXPECT_EQ(away->train.arena_bytes, predicted.arena_bytes);
    EXPECT_EQ(away->train.offload.host_bytes, predicted.host_bytes);
    EXPECT_EQ(away->trace.pinned_fixed_bytes - kept->trace.pinned_fixed_bytes, predicted.host_bytes);
    EXPECT_EQ(kept->trace.device_fixed_bytes - away->trace.device_fixed_bytes,
              kept->train.arena_bytes - predicted.arena_bytes);
    EXPECT_EQ(kept->planned_peak[0] - away->planned_peak[0], kept->train.arena_bytes - predicted.arena_bytes);
    EXPECT_EQ(away->planned_peak[1] - kept->planned_peak[1], predicted.host_bytes);
  }
}

TEST(ActivationOffloadPlanTest, EveryMicroBatchMovesWhatIsAwayOnceDownAndOnceUp) {
  const test::TempDir dir;
  const auto moved = [&](Away away) {
    TinyRun run(plan_of(kOne, Recompute::none, away, StepMode::serial, dir.path()));
    must(run.engine->initialize(5));
    const MovedBytes before = run.engine->moved();
    run.train(3);
    MovedBytes after = run.engine->moved();
    after.h2d -= before.h2d;
    after.d2h -= before.d2h;
    return std::pair{after, run.plan->train.offload.bytes};
  };
  const auto [kept, nothing] = moved(Away::none);
  const auto [away, bytes] = moved(Away::all);
  EXPECT_EQ(nothing, 0u);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(away.d2h - kept.d2h, 3 * 2 * bytes);
  EXPECT_EQ(away.h2d - kept.h2d, 3 * 2 * bytes);
}

TEST(ActivationOffloadPlanTest, StepsThreeToTwelveAllocateNothingAndMakeNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  const test::TempDir dir;
  TinyRun run(plan_of(kOne, Recompute::selective, Away::all, StepMode::two_phase, dir.path()), 2,
              HostBackendOptions{});
  must(run.engine->initialize(1));
  test::CountingBatches batches(test::tiny_config().vocab);
  StepReport report;
  for (int step = 1; step <= 2; ++step) must(run.engine->train_step(batches, 1e-2, report));
  const std::uint64_t resources = run.engine->resources_created(), allocations = AllocCounter::count();
  AllocCounter::set_armed(true);
  Status status;
  for (int step = 3; step <= 12 && status.is_ok(); ++step)
    status = run.engine->train_step(batches, 1e-2, report);
  AllocCounter::set_armed(false);
  must(status);
  EXPECT_EQ(AllocCounter::count(), allocations);
  EXPECT_EQ(run.engine->resources_created(), resources);
}

}  // namespace
}  // namespace strata

// The moving average of the parameters: what it is after each step, on every tier, and where it begins.
#include <algorithm>

#include <gtest/gtest.h>

#include <strata/session/checkpoint.h>
#include <strata/session/pass_schedule.h>

#include "engine/states.h"
#include "engine/tiny_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::StateTensors;
using test::TinyRun;

struct EmaCase {
  const char* name;
  DType compute;
  PlacementPolicy policy;
  cpuopt::Optimizer optimizer = cpuopt::Optimizer::adamw;
};

class EmaRunTest : public ::testing::TestWithParam<EmaCase> {
 protected:
  SessionOptions options(double decay) const {
    SessionOptions options;
    options.policy = GetParam().policy;
    options.optimizer.optimizer = GetParam().optimizer;
    options.optimizer.ema_decay = decay;
    options.nvme.dirs = {dir.path()};
    return options;
  }
  TinyRun run_of(double decay) const {
    return TinyRun(must(Engine::plan(
        test::tiny_programs(Recompute::none, 3, test::tiny_config(), GetParam().compute), options(decay))));
  }
  const test::TempDir dir;
};

TEST_P(EmaRunTest, BeginsWithTheParametersAndMovesTowardsThemAfterEachStep) {
  TinyRun run = run_of(0.75);
  must(run.engine->initialize(5));
  StateTensors want = test::states_of(*run.engine, Payload::param);
  EXPECT_EQ(test::states_of(*run.engine, Payload::ema), want);
  for (int step = 0; step < 3; ++step) {
    run.train(1);
    const StateTensors params = test::states_of(*run.engine, Payload::param);
    for (auto& [name, average] : want)
      for (std::size_t i = 0; i < average.size(); ++i) {
        const float part = 0.25f * (params.at(name)[i] - average[i]);
        average[i] = average[i] + part;
      }
    EXPECT_EQ(test::states_of(*run.engine, Payload::ema), want) << "step " << step;
  }
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
}

TEST_P(EmaRunTest, ChangesNoBitOfTheRun) {
  TinyRun with = run_of(0.9), without = run_of(0);
  for (TinyRun* run : {&with, &without}) must(run->engine->initialize(5));
  EXPECT_EQ(with.train(3), without.train(3));
  EXPECT_EQ(test::states_of(*with.engine, Payload::param), test::states_of(*without.engine, Payload::param));
  EXPECT_EQ(without.engine->visit(Payload::ema, [](const auto&, auto) { return Status::ok(); }).code(),
            Code::unsupported);
}

// It is read like the moments: once a step, ahead of its use.
TEST_P(EmaRunTest, IsReadOnceAStepFromNvme) {
  const bool on_nvme = GetParam().policy == PlacementPolicy::nvme;
  TinyRun with = run_of(0.9), without = run_of(0);
  std::uint64_t bytes = 0;
  for (ChunkId chunk = 0; chunk < with.plan->layout.n_chunks(); ++chunk)
    bytes += with.plan->layout.payload_bytes(chunk, Payload::ema);
  const auto moved_in_steps = [](TinyRun& run) {
    must(run.engine->initialize(5));
    run.train(2);
    const MovedBytes before = run.engine->moved();
    run.train(3);
    return run.engine->moved() - before;
  };
  const MovedBytes more = moved_in_steps(with) - moved_in_steps(without);
  EXPECT_LE(more.nvme_read, on_nvme ? 3 * bytes : 0);
  EXPECT_EQ(more.nvme_read > 0, on_nvme);
}

// Eviction and prefetching ask the schedule: what it lacks is never fetched ahead, and evicted first.
TEST_P(EmaRunTest, TheScheduleHasEveryStateThatAnUpdateTouches) {
  const TinyRun run = run_of(0.9);
  const PassSchedule schedule =
      make_schedule(PassRepeat{&run.plan->of(ProgramRole::train).uses, run.plan->passes()}, *run.plan,
                    commit_timing(*run.plan));
  ASSERT_FALSE(schedule.commits.empty());
  for (const auto& [position, chunk] : schedule.commits)
    for (const Payload payload : kPersistentPayloads) {
      if (!run.plan->layout.has(chunk, payload)) continue;
      const bool is_there = std::any_of(schedule.uses.begin(), schedule.uses.end(), [&](const Use& use) {
        return use.key == PayloadKey{chunk, payload} && use.tier == Tier::pinned;
      });
      EXPECT_TRUE(is_there) << to_string(payload) << " of chunk " << chunk;
    }
}

// A checkpoint of a run without an average is one to begin with; one with it is read by a run that keeps
// none.
TEST_P(EmaRunTest, BeginsWithTheParametersOfACheckpointThatHasNoAverage) {
  TinyRun without = run_of(0);
  must(without.engine->initialize(5));
  without.train(2);
  const std::string saved = must(save_checkpoint(*without.engine, posix_io(), dir.file("without"), {}, 0));
  TinyRun with = run_of(0.9);
  must(with.engine->initialize(6));
  must(load_checkpoint(*with.engine, posix_io(), saved));
  EXPECT_EQ(test::states_of(*with.engine, Payload::ema), test::states_of(*without.engine, Payload::param));
  EXPECT_EQ(with.train(1), without.train(1));

  const std::string averaged = must(save_checkpoint(*with.engine, posix_io(), dir.file("with"), {}, 0));
  TinyRun another = run_of(0);
  must(load_checkpoint(*another.engine, posix_io(), averaged));
  EXPECT_EQ(must(another.engine->state_digest()), must(without.engine->state_digest()));
}

INSTANTIATE_TEST_SUITE_P(
    Placements, EmaRunTest,
    ::testing::Values(EmaCase{"f32", DType::f32, PlacementPolicy::automatic},
                      EmaCase{"bf16", DType::bf16, PlacementPolicy::automatic},
                      EmaCase{"bf16_pinned", DType::bf16, PlacementPolicy::pinned},
                      EmaCase{"bf16_nvme", DType::bf16, PlacementPolicy::nvme},
                      EmaCase{"f16_nvme", DType::f16, PlacementPolicy::nvme},
                      EmaCase{"lamb", DType::bf16, PlacementPolicy::automatic, cpuopt::Optimizer::lamb},
                      EmaCase{"lamb_pinned", DType::f32, PlacementPolicy::pinned, cpuopt::Optimizer::lamb}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace strata

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/session/checkpoint.h>

#include "engine/tiny_run.h"
#include "support/fault_io.h"

namespace strata {
namespace {

using test::Fault;
using test::FaultIo;
using test::FaultKind;
using test::IoCall;
using test::tiny_programs;
using test::TinyRun;
using testing::AnyOf;
using testing::HasSubstr;

// Places everything that can live on nvme there, except `kept` payloads, which stay in RAM.
std::unique_ptr<const RunPlan> swapped_plan(const std::string& dir, std::vector<Payload> kept,
                                            StepMode mode) {
  SessionOptions options = test::swapping_options(dir, mode);
  if (mode == StepMode::speculative) options.clip = 0;  // so that all guesses are right
  return must(Engine::plan_with(
      tiny_programs(Recompute::full), options, [&](const ChunkLayout&, Placement& placement) {
        for (auto& homes : placement.homes)
          for (const Payload payload : {Payload::param, Payload::m, Payload::v, Payload::accum})
            homes[static_cast<std::size_t>(payload)] =
                std::count(kept.begin(), kept.end(), payload) != 0 ? Tier::pinned : Tier::nvme;
      }));
}

struct FaultyIoRun {
  explicit FaultyIoRun(const std::string& dir, std::vector<Payload> kept = {},
                       StepMode mode = StepMode::serial)
      : run(swapped_plan(dir, std::move(kept), mode), 1,
            {.schedule = StreamSchedule::latest_legal, .check = true}, io) {
    must(run.engine->initialize(3));
    run.train(1);
  }
  Status step() {
    test::CountingBatches batches(test::tiny_config().vocab);
    StepReport report;
    return run.engine->train_step(batches, 1e-2, report);
  }
  FaultIo io{posix_io(), 5};
  TinyRun run;
};

TEST(SwapFaultTest, PermanentReadFailuresFailTheStepNamingChunkAndPayloadAndTheStatesStay) {
  const test::TempDir dir;
  FaultyIoRun faulty(dir.path());
  const std::string before = must(faulty.run.engine->state_digest());
  faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + 1, true});
  const Status status = faulty.step();
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_THAT(std::string(status.message()), HasSubstr("param: reading id"));
  faulty.io.clear();
  EXPECT_EQ(must(faulty.run.engine->state_digest()), before);
  EXPECT_EQ(faulty.run.engine->steps(), 1);
}

TEST(SwapFaultTest, AStepThatFailedBeforeItsUpdateCanBeRetriedWithTheSameBits) {
  const test::TempDir dir;
  FaultyIoRun straight(dir.path()), faulty(dir.path());
  must(straight.step());
  faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + 9, true});
  EXPECT_EQ(faulty.step().code(), Code::io_error);
  faulty.io.clear();
  must(faulty.step());
  EXPECT_EQ(must(faulty.run.engine->state_digest()), must(straight.run.engine->state_digest()));
}

TEST(SwapFaultTest, AFlippedBitIsFoundNamedAndNeverUsed) {
  const test::TempDir dir;
  FaultyIoRun faulty(dir.path());
  const std::string before = must(faulty.run.engine->state_digest());
  faulty.io.add({IoCall::read, FaultKind::flip, faulty.io.calls(IoCall::read) + 3, true});
  const Status status = faulty.step();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(std::string(status.message()), HasSubstr("param"));
  faulty.io.clear();
  EXPECT_EQ(must(faulty.run.engine->state_digest()), before);
}

TEST(SwapFaultTest, AnInterruptedUpdateIsReportedUntilACheckpointIsLoaded) {
  const test::TempDir dir;
  FaultyIoRun faulty(dir.path(), {Payload::param, Payload::accum});
  const std::string saved =
      must(save_checkpoint(*faulty.run.engine, posix_io(), dir.file("checkpoints"), {}, 0));
  const std::string before = must(faulty.run.engine->state_digest());
  faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + 7,
                 true});  // in the midst of the moments
  const Status status = faulty.step();
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_THAT(std::string(status.message()), HasSubstr("load a checkpoint"));
  EXPECT_THAT(std::string(status.message()), AnyOf(HasSubstr(" m: "), HasSubstr(" v: ")));
  faulty.io.clear();
  EXPECT_EQ(faulty.step(), status);
  EXPECT_EQ(faulty.run.engine->state_digest().status(), status);
  must(load_checkpoint(*faulty.run.engine, posix_io(), saved));
  EXPECT_EQ(must(faulty.run.engine->state_digest()), before);
  must(faulty.step());
}

class PendingUpdateTest : public testing::TestWithParam<StepMode> {};

// An update that runs during the next step stays pending until it succeeds. A speculative one is rolled back
// when the swap fails, from the log in RAM and from the snapshots on nvme.
TEST_P(PendingUpdateTest, StaysPendingUntilTheSwapWorksAgain) {
  const test::TempDir dir;
  for (std::uint64_t nth = 1;; nth += 3) {
    FaultyIoRun straight(dir.path(), {Payload::param, Payload::accum}, GetParam());
    FaultyIoRun faulty(dir.path(), {Payload::param, Payload::accum}, GetParam());
    must(straight.step());
    const std::string after = must(straight.run.engine->state_digest());
    const std::string before = must(
        FaultyIoRun(dir.path(), {Payload::param, Payload::accum}, GetParam()).run.engine->state_digest());
    faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + nth, true});
    const Status status = faulty.step();
    if (status.is_ok() && faulty.run.engine->state_digest().has_value()) {
      EXPECT_GT(nth, 10u);
      return;
    }
    if (!status.is_ok()) {
      EXPECT_EQ(status.code(), Code::io_error);
      EXPECT_THAT(std::string(status.message()), HasSubstr("chunk "));
      EXPECT_EQ(faulty.run.engine->state_digest().status().code(), Code::io_error);
    }
    faulty.io.clear();
    EXPECT_EQ(must(faulty.run.engine->state_digest()), status.is_ok() ? after : before) << "read " << nth;
    if (!status.is_ok()) must(faulty.step());
    EXPECT_EQ(must(faulty.run.engine->state_digest()), after) << "read " << nth;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PendingUpdateTest,
                         testing::Values(StepMode::two_phase, StepMode::speculative),
                         [](const auto& mode) { return std::string(to_string(mode.param)); });

TEST(SwapFaultTest, APendingUpdateThatFailsIsDiscardedByLoadingACheckpoint) {
  const test::TempDir dir;
  FaultyIoRun faulty(dir.path(), {Payload::param, Payload::accum}, StepMode::two_phase);
  const std::string saved =
      must(save_checkpoint(*faulty.run.engine, posix_io(), dir.file("checkpoints"), {}, 0));
  const std::string before = must(faulty.run.engine->state_digest());
  must(faulty.step());
  faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + 5, true});
  EXPECT_EQ(faulty.step().code(), Code::io_error);
  must(load_checkpoint(*faulty.run.engine, posix_io(), saved));
  faulty.io.clear();
  EXPECT_EQ(must(faulty.run.engine->state_digest()), before);
  must(faulty.step());
}

// Runs `call` again and again while reads begin to fail at its first, second, ... read. After each failure
// the next call, which reads or sets all states, works as if nothing had happened.
void sweep_between_steps(const std::function<Result<double>(Engine&)>& call) {
  const test::TempDir dir;
  FaultyIoRun straight(dir.path()), faulty(dir.path());
  Engine& engine = *faulty.run.engine;
  const std::string saved = must(save_checkpoint(engine, posix_io(), dir.file("checkpoints"), {}, 0));
  const double want = must(call(*straight.run.engine));
  std::uint64_t failures = 0;
  for (;; ++failures) {
    faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + failures + 1, true});
    const Result<double> got = call(engine);
    faulty.io.clear();
    if (got.has_value()) break;
    ASSERT_EQ(got.status().code(), Code::io_error) << got.status().to_string();
    if (failures % 2 == 0)
      must(load_checkpoint(engine, posix_io(), saved));
    else
      ASSERT_EQ(must(call(engine)), want) << "read " << failures;
  }
  EXPECT_GT(failures, 3u);
  for (FaultyIoRun* run : {&straight, &faulty}) must(run->step());
  EXPECT_EQ(must(engine.state_digest()), must(straight.run.engine->state_digest()));
}
TEST(SwapFaultTest, AnEvaluationThatFailsAnywhereHoldsNothing) {
  sweep_between_steps([](Engine& engine) {
    test::CountingBatches batches(test::tiny_config().vocab);
    return engine.evaluate(batches, 2);
  });
}
TEST(SwapFaultTest, AnInferenceThatFailsAnywhereHoldsNothing) {
  sweep_between_steps([](Engine& engine) -> Result<double> {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(test::tiny_config().seq), 7);
    STRATA_TRY_ASSIGN(const std::span<const float> logits, engine.infer(tokens, 3));
    return static_cast<double>(logits[1]);
  });
}

// Wherever in a step the swap begins to fail, the error names a chunk, and the states are the old ones or
// refused.
void sweep(IoCall call, Code code) {
  const test::TempDir dir;
  for (std::uint64_t nth = 1;; nth += nth < 12 ? 1 : 5) {
    FaultyIoRun faulty(dir.path());
    const std::string before = must(faulty.run.engine->state_digest());
    faulty.io.add({call, FaultKind::fail, faulty.io.calls(call) + nth, true, code});
    const Status status = faulty.step();
    if (status.is_ok()) {
      EXPECT_GT(nth, 10u);
      return;
    }
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(std::string(status.message()), HasSubstr("chunk ")) << "call " << nth;
    if (call == IoCall::write) continue;  // no write succeeds, so the states cannot be read
    faulty.io.clear();
    const Result<std::string> after = faulty.run.engine->state_digest();
    EXPECT_EQ(after.has_value() ? *after : before, before) << "call " << nth;
    EXPECT_TRUE(after.has_value() || after.status() == status) << "call " << nth;
  }
}
TEST(SwapFaultTest, ReadsMayBeginToFailAnywhere) { sweep(IoCall::read, Code::io_error); }
TEST(SwapFaultTest, WritesMayBeginToFailAnywhere) { sweep(IoCall::write, Code::io_error); }
TEST(SwapFaultTest, TheDiskMayBeFullAnywhere) { sweep(IoCall::write, Code::no_space); }

// --- saving a checkpoint ---

struct Saving {
  Saving() : run(must(Engine::plan(tiny_programs(), {.chunk_elems = 8192}))) {
    must(run.engine->initialize(3));
    run.train(1);
    must(save_checkpoint(*run.engine, posix_io(), dir.path(), {{"note", "old"}}, 0));
  }
  std::string digest_of_newest() {
    TinyRun other(must(Engine::plan(tiny_programs(), {})));
    must(load_checkpoint(*other.engine, posix_io(), must(newest_checkpoint(posix_io(), dir.path()))));
    return must(other.engine->state_digest());
  }
  bool has_drafts() const {
    for (const std::string& name : must(posix_io().list(dir.path())))
      if (name.front() == '.') return true;
    return false;
  }
  test::TempDir dir;
  TinyRun run;
};

class CheckpointFaultTest : public testing::TestWithParam<std::tuple<IoCall, Code>> {};

TEST_P(CheckpointFaultTest, AnyFailedCallKeepsTheOldCheckpointAndLeavesNoDraft) {
  const auto [call, code] = GetParam();
  for (std::uint64_t nth = 1;; ++nth) {
    Saving saving;
    const std::string old = must(saving.run.engine->state_digest());
    saving.run.train(1);
    FaultIo io(posix_io(), nth);
    io.add({call, FaultKind::fail, nth, true, code});
    const auto saved = save_checkpoint(*saving.run.engine, io, saving.dir.path(), {}, 0);
    EXPECT_FALSE(saving.has_drafts()) << nth;
    if (saved.has_value()) {
      EXPECT_LT(io.calls(call), nth);
      EXPECT_GT(nth, 1u);
      return;
    }
    EXPECT_EQ(saved.status().code(), code);
    EXPECT_THAT(std::string(saved.status().message()), HasSubstr("saving checkpoint"));
    // After the rename the checkpoint exists; it is only uncertain whether it would survive a power failure.
    const bool renamed = call == IoCall::sync_dir && posix_io().exists(saving.dir.file("step-00000002"));
    EXPECT_EQ(saving.digest_of_newest(), renamed ? must(saving.run.engine->state_digest()) : old) << nth;
  }
}

TEST_P(CheckpointFaultTest, SavingTheSameStepAgainNeverLosesIt) {
  const auto [call, code] = GetParam();
  for (const bool same_bits : {true, false})
    for (std::uint64_t nth = 1;; ++nth) {
      Saving saving;
      const std::string old = must(saving.run.engine->state_digest());
      if (!same_bits) must(saving.run.engine->initialize(4));
      const std::string fresh = must(saving.run.engine->state_digest());
      FaultIo io(posix_io(), nth);
      io.add({call, FaultKind::fail, nth, false, code});
      const auto saved = save_checkpoint(*saving.run.engine, io, saving.dir.path(), {{"note", "new"}}, 0);
      EXPECT_THAT(saving.digest_of_newest(), AnyOf(old, fresh)) << nth;
      if (!saved.has_value()) continue;
      EXPECT_EQ(saving.digest_of_newest(), fresh);
      EXPECT_EQ(must(read_manifest(posix_io(), *saved)).run.at("note"), "new");
      EXPECT_FALSE(saving.has_drafts());
      if (io.calls(call) < nth) break;  // a fault in reading the old checkpoint may be survived
    }
}

INSTANTIATE_TEST_SUITE_P(EveryCall, CheckpointFaultTest,
                         testing::Values(std::tuple{IoCall::open, Code::io_error},
                                         std::tuple{IoCall::write, Code::io_error},
                                         std::tuple{IoCall::write, Code::no_space},
                                         std::tuple{IoCall::sync, Code::io_error},
                                         std::tuple{IoCall::rename, Code::io_error},
                                         std::tuple{IoCall::sync_dir, Code::io_error}));

TEST(CheckpointLoadFaultTest, AReadThatFailsAnywhereLeavesTheOldStatesOrNone) {
  Saving saving;
  TinyRun other(must(Engine::plan(tiny_programs(), {})));
  for (std::uint64_t nth = 1;; ++nth) {
    must(other.engine->initialize(9));
    const std::string before = must(other.engine->state_digest());
    FaultIo io(posix_io(), nth);
    io.add({IoCall::read, FaultKind::fail, nth, true});
    const auto loaded =
        load_checkpoint(*other.engine, io, must(newest_checkpoint(posix_io(), saving.dir.path())));
    if (loaded.has_value()) break;
    const auto after = other.engine->state_digest();
    EXPECT_EQ(after.has_value() ? *after : before, before) << nth;
    EXPECT_TRUE(after.has_value() ||
                after.status().message().find("was interrupted") != std::string_view::npos)
        << nth;
  }
  EXPECT_EQ(must(other.engine->state_digest()), must(saving.run.engine->state_digest()));
}

TEST(CheckpointKeepTest, TheCheckpointJustSavedStaysBesideHigherStepsOfAnotherRun) {
  Saving saving;
  saving.run.engine->set_steps(9);
  must(save_checkpoint(*saving.run.engine, posix_io(), saving.dir.path(), {}, 0));
  saving.run.engine->set_steps(4);
  const std::string saved = must(save_checkpoint(*saving.run.engine, posix_io(), saving.dir.path(), {}, 1));
  EXPECT_TRUE(posix_io().exists(saved + "/manifest.json"));
}

}  // namespace
}  // namespace strata

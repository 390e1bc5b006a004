// Checkpoints that several ranks write together have the bytes of one rank's, and any number of ranks loads
// them.
#include <array>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>

#include "engine/rank_run.h"
#include "support/fault_io.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::RankOutcome;
using test::RankRun;
using ::testing::HasSubstr;

constexpr std::int32_t kRankGradAccum = 24;
constexpr std::array kWorlds = {1, 2, 3, 4, 8};

RankRun run_of(std::int32_t ranks, std::int32_t zero) {
  RankRun run;
  run.ranks = ranks;
  run.plan = [=](std::int32_t rank) {
    SessionOptions options;
    options.grad_accum = kRankGradAccum;
    options.chunk_elems = 4096 * ranks;
    options.budgets = {8 << 20, 8 << 20, 0};
    options.policy = zero % 2 == 0 ? PlacementPolicy::device : PlacementPolicy::pinned;
    options.ranks = {.ranks = ranks, .rank = rank, .zero = ranks == 1 ? 0 : zero};
    return Engine::plan(test::tiny_programs(Recompute::none, 1, test::rank_model()), options);
  };
  return run;
}

Status train(Engine& engine, int steps, RankOutcome& outcome) {
  CountingBatches batches(test::rank_model().vocab);
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-2, report));
    outcome.losses.push_back(report.loss);
  }
  return {};
}

RankOutcome must_run(const RankRun& run, const test::RankBody& body) {
  RankOutcome outcome = run.run(body);
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  return outcome;
}

// Trains two steps, saves, trains two more, and returns the losses and the digest at the end.
RankOutcome save_after_two(const RankRun& run, const std::string& dir, std::string* digest = nullptr) {
  return must_run(run, [&](Engine& engine, RankOutcome& outcome) -> Status {
    STRATA_TRY(engine.initialize(3));
    STRATA_TRY(train(engine, 2, outcome));
    STRATA_TRY(save_checkpoint(engine, posix_io(), dir, {{"key", "value"}}, 0).status());
    STRATA_TRY(train(engine, 2, outcome));
    STRATA_TRY_ASSIGN(const std::string found, engine.state_digest());
    if (digest != nullptr && engine.plan().options.ranks.rank == 0) *digest = found;
    return {};
  });
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const std::string& name : must(posix_io().list(folder)))
    files[name] = must(read_text(posix_io(), folder + "/" + name, 1 << 30));
  return files;
}

TEST(RankCheckpointTest, EveryWorldWritesTheSameBytesAndContinuesAnyOther) {
  const test::TempDir dir;
  std::string want_digest;
  const RankOutcome want = save_after_two(run_of(1, 0), dir.path() + "/1", &want_digest);
  const auto files = contents(dir.path() + "/1/step-00000002");
  EXPECT_EQ(files.size(), 4u);
  for (const std::int32_t ranks : kWorlds)
    for (const std::int32_t zero : {0, 2, 3}) {
      if (ranks == 1) continue;
      const std::string folder = str(dir.path(), "/", ranks, "-", zero);
      std::string digest;
      EXPECT_EQ(save_after_two(run_of(ranks, zero), folder, &digest).losses, want.losses);
      EXPECT_EQ(digest, want_digest) << ranks << " ranks, zero " << zero;
      EXPECT_EQ(contents(folder + "/step-00000002"), files) << ranks << " ranks, zero " << zero;
    }
  const std::vector<float> rest(want.losses.begin() + 2, want.losses.end());
  for (const std::int32_t saved : kWorlds)
    for (const std::int32_t loaded : kWorlds) {
      const std::string from =
          str(dir.path(), "/", saved, saved == 1 ? "" : str("-", 2 + loaded % 2), "/step-00000002");
      const RankOutcome resumed =
          must_run(run_of(loaded, 2 + saved % 2), [&](Engine& engine, RankOutcome& outcome) -> Status {
            STRATA_TRY(load_checkpoint(engine, posix_io(), from).status());
            STRATA_TRY(train(engine, 2, outcome));
            STRATA_TRY_ASSIGN(const std::string digest, engine.state_digest());
            EXPECT_EQ(digest, want_digest);
            return {};
          });
      EXPECT_EQ(resumed.losses, rest) << "from " << saved << " to " << loaded << " ranks";
    }
}

TEST(RankCheckpointTest, ADamagedTensorIsNamedOnAllRanks) {
  const test::TempDir dir;
  save_after_two(run_of(2, 3), dir.path());
  const std::string path = dir.path() + "/step-00000002/m.safetensors";
  std::string bytes = must(read_text(posix_io(), path, 1 << 30));
  bytes[bytes.size() - 5] ^= 1;
  must(write_text_atomically(posix_io(), path, bytes));
  const RankOutcome outcome = run_of(4, 3).run([&](Engine& engine, RankOutcome&) -> Status {
    const Status status = load_checkpoint(engine, posix_io(), dir.path() + "/step-00000002").status();
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is damaged: its digest is"));
    return {};
  });
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
}

// Every call of every rank fails once. Either all ranks have saved, or all have the error, and then the
// earlier checkpoint is intact and nothing else is left.
TEST(RankCheckpointTest, AFailureOfOneRankIsAnErrorOnAllAndLeavesTheEarlierCheckpoint) {
  const test::TempDir dir;
  for (std::int32_t faulty = 0; faulty < 3; ++faulty)
    for (const test::IoCall call : {test::IoCall::open, test::IoCall::write, test::IoCall::sync})
      for (std::uint64_t nth = 1; nth <= 4; ++nth) {
        const std::string folder = str(dir.path(), "/", faulty, "-", static_cast<int>(call), "-", nth);
        std::array<Status, 3> saved;
        const RankOutcome outcome =
            must_run(run_of(3, 3), [&](Engine& engine, RankOutcome& trained) -> Status {
              const auto rank = static_cast<std::size_t>(engine.plan().options.ranks.rank);
              STRATA_TRY(engine.initialize(3));
              STRATA_TRY(train(engine, 1, trained));
              STRATA_TRY(save_checkpoint(engine, posix_io(), folder, {}, 0).status());
              STRATA_TRY(train(engine, 1, trained));
              test::FaultIo io(posix_io(), 1);
              if (static_cast<std::int32_t>(rank) == faulty)
                io.add({.call = call, .nth = nth, .code = Code::no_space});
              saved[rank] = save_checkpoint(engine, io, folder, {}, 0).status();
              return {};
            });
        for (const Status& status : saved) EXPECT_EQ(status.code(), saved[0].code()) << status.to_string();
        const auto steps = must(posix_io().list(folder));
        if (saved[0].is_ok())
          EXPECT_THAT(steps, ::testing::ElementsAre("step-00000001", "step-00000002"));
        else
          EXPECT_THAT(steps, ::testing::ElementsAre("step-00000001")) << saved[0].to_string();
      }
}

}  // namespace
}  // namespace strata

// One of several thread ranks fails, or differs from the others. engine/mpi has the same with processes.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "engine/rank_run.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::RankOutcome;
using test::RankRun;
using ::testing::HasSubstr;

constexpr std::int32_t kRanks = 3;

class FailingBatches final : public BatchSource {
 public:
  explicit FailingBatches(bool fails) : fails_(fails) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    if (fails_ && index >= 2 * kRanks) return Status::error(Code::out_of_memory, "no memory for a batch");
    return batches_.fill(index, batch);
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override { return batches_.n_counted(index, n); }

 private:
  const bool fails_;
  CountingBatches batches_{test::tiny_config().vocab};
};

/// How every rank ended. `change` alters the options of the last rank.
std::vector<Status> outcomes(const std::function<void(SessionOptions&)>& change, std::int32_t failing = -1) {
  std::vector<Status> ended(kRanks);
  RankRun run;
  run.ranks = kRanks;
  run.plan = [&](std::int32_t rank) {
    SessionOptions options;
    options.grad_accum = 2 * kRanks;
    options.chunk_elems = std::int64_t{4096} * kRanks;
    options.ranks = {.ranks = kRanks, .rank = rank, .zero = 3};
    if (rank == kRanks - 1) change(options);
    return Engine::plan(test::tiny_programs(), options);
  };
  const RankOutcome all = run.run([&](Engine& engine, RankOutcome&) -> Status {
    const std::int32_t rank = engine.world()->rank();
    Status& outcome = ended[static_cast<std::size_t>(rank)];
    FailingBatches batches(rank == failing);
    outcome = engine.initialize(3);
    for (int step = 0; step < 3 && outcome.is_ok(); ++step) {
      StepReport report;
      outcome = engine.train_step(batches, 1e-2, report);
    }
    return outcome;
  });
  for (Status& status : ended)
    if (status.is_ok()) status = all.status;  // the status of a rank that has no engine
  return ended;
}

TEST(RankFaultsTest, TheOthersLearnWhyOneFailed) {
  for (const std::int32_t failing : {0, 1, 2}) {
    const std::vector<Status> ended = outcomes([](SessionOptions&) {}, failing);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      const Status& status = ended[static_cast<std::size_t>(rank)];
      if (rank == failing) {
        EXPECT_EQ(status.to_string(), "out_of_memory: no memory for a batch");
        continue;
      }
      EXPECT_EQ(status.code(), Code::lost_peer) << status.to_string();
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(str("rank ", failing,
                                " of 3 has left the group: out_of_memory: no memory for a batch; it "
                                "was in step 2, micro-batch ",
                                failing + 1)));
    }
  }
}

TEST(RankFaultsTest, ADifferenceIsNamedOnAllRanks) {
  const std::pair<std::function<void(SessionOptions&)>, const char*> cases[] = {
      {[](SessionOptions& o) { o.clip = 7; },
       "the same settings: line 2 is \"clip = 1\" on rank 0 of 3 (threads) and \"clip = 7\""},
      {[](SessionOptions& o) { o.optimizer.beta2 = 0.5; },
       "the same settings: line 3 is \"optimizer = adamw"},
      {[](SessionOptions& o) { o.chunk_elems *= 2; }, "the same layout of chunks: line "},
      {[](SessionOptions& o) { o.ranks.gather_ahead = 0; },
       "the same collectives: line 2 is \"gather chunk "}};
  for (const auto& [change, want] : cases)
    for (const Status& status : outcomes(change)) {
      EXPECT_EQ(status.code(), Code::invalid) << status.to_string();
      EXPECT_THAT(std::string(status.message()), HasSubstr(want));
    }
}

TEST(RankFaultsTest, BudgetsStepModesAndPlacementsMayDiffer) {
  const std::vector<Status> ended = outcomes([](SessionOptions& options) {
    options.step_mode = StepMode::serial;
    options.policy = PlacementPolicy::pinned;
    options.prefetch = 0;
  });
  for (const Status& status : ended) EXPECT_TRUE(status.is_ok()) << status.to_string();
}

}  // namespace
}  // namespace strata

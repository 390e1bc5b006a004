// Tests the NCCL transport when NCCL, the backend or another rank fails: nobody hangs or crashes, and
// everybody is told why.
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/nccl/nccl_ranks.h"

namespace strata {
namespace {

using test::fake_nccl;
using test::NcclRanks;
using test::Rank;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kSystemError = 2;

class NcclFailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_nccl().set_polls(1);
    fake_nccl().set_notices(true);
    live_before_ = fake_nccl().n_live();
  }
  // Whatever failed, every communicator has ended.
  void TearDown() override { EXPECT_EQ(fake_nccl().n_live(), live_before_); }

 private:
  int live_before_ = 0;
};

/// One of each collective, and a group that is divided.
Status use_all(Rank& rank) {
  const Buffer small = rank.allocate(1200), large = rank.allocate(1200 * 4);
  const auto n = static_cast<std::size_t>(rank.group.size());
  const BufferView part = small.view().part(0, 1200), whole = large.view().part(0, 1200 * n);
  STRATA_TRY(rank.group.all_gather(part, whole, rank.stream));
  STRATA_TRY(rank.group.reduce_scatter(whole, part, DType::f32, Reduction::sum, rank.stream));
  STRATA_TRY(rank.group.all_reduce(part, DType::bf16, Reduction::max, rank.stream));
  STRATA_TRY(rank.group.broadcast(part, 1, rank.stream));
  const Buffer other = rank.allocate(1200 * 4);
  STRATA_TRY(rank.group.all_to_all(whole, other.view().part(0, 1200 * n), rank.stream));
  if (rank.index() == 0) STRATA_TRY(rank.group.send(part, 1, rank.stream));
  if (rank.index() == 1) STRATA_TRY(rank.group.receive(part, 0, rank.stream));
  std::vector<int> all;
  for (int q = rank.group.size(); q > 0; --q) all.push_back(q - 1);
  STRATA_TRY_ASSIGN(const std::unique_ptr<ProcessGroup> divided, rank.group.split(all));
  STRATA_TRY(divided->all_reduce(part, DType::f32, Reduction::sum, rank.stream));
  return rank.backend.synchronize(rank.stream);
}

/// The failing rank names the function and what NCCL says; the others say that they have lost a rank.
void expect_told(const std::vector<Status>& outcomes, int failing, const std::string& text) {
  for (const Status& outcome : outcomes)
    EXPECT_THAT(outcome.code(), AnyOf(Code::lost_peer, Code::unsupported)) << outcome.to_string();
  EXPECT_THAT(outcomes[static_cast<std::size_t>(failing)].to_string(), HasSubstr(text));
}

class EveryCallFailsTest : public NcclFailuresTest, public ::testing::WithParamInterface<int> {
 protected:
  /// Runs use_all() while the k-th call of one rank fails; `planted` makes it fail on the rank's thread, and
  /// `ended` is called on that thread when the rank has left its group.
  std::vector<Status> run(const std::function<void()>& plant, const std::function<void()>& ended) {
    const auto before = [&](int rank) {
      if (rank == GetParam()) plant();
    };
    return ranks_.run(
        [&](Rank& rank) {
          const bool fails = rank.index() == GetParam();
          Status status = use_all(rank);
          rank.leave();
          if (fails) ended();
          return status;
        },
        before);
  }
  const Status& mine(const std::vector<Status>& outcomes) const {
    return outcomes[static_cast<std::size_t>(GetParam())];
  }
  NcclRanks ranks_{3, StreamSchedule::threads};
};

TEST_P(EveryCallFailsTest, IsReportedWithTheFunctionAndTheTextOfNccl) {
  int failures = 0;
  for (int k = 1, calls = 1; calls >= k; ++k) {
    int depth = 0;
    const auto outcomes = run([&] { fake_nccl().fail_call(k, kSystemError); },
                              [&] { calls = fake_nccl().n_calls(), depth = fake_nccl().group_depth(); });
    EXPECT_EQ(depth, 0);
    if (mine(outcomes).is_ok()) continue;  // the end of a communicator cannot fail
    ++failures;
    calls = k + 1;  // at least
    expect_told(outcomes, GetParam(), k == 1 ? "ncclGetVersion: fake error" : "fake error: planted in nccl");
  }
  EXPECT_GE(failures, 40);
}

// A run has as many polls as other ranks make it wait. After the last one the others may be done.
TEST_P(EveryCallFailsTest, AlsoThoseThatAskWhetherACallIsDone) {
  fake_nccl().set_polls(3);  // so that a split may be complete before its rank has seen it
  int failures = 0;
  for (int k = 1; k <= 60; ++k) {
    const auto outcomes = run([&] { fake_nccl().fail_poll(k, kSystemError); }, [] {});
    if (mine(outcomes).is_ok()) continue;
    ++failures;
    EXPECT_THAT(mine(outcomes).to_string(), HasSubstr("fake error: planted in ncclCommGetAsyncError"));
  }
  EXPECT_GE(failures, 10);
}

TEST_P(EveryCallFailsTest, SoDoesEveryCallOfTheBackend) {
  test::FaultBackend& backend = ranks_.faults(GetParam());
  int failures = 0;
  for (std::uint64_t k = 1, calls = 1; calls >= k; ++k) {
    const std::uint64_t before = backend.calls();
    backend.fail(k, false);
    const auto outcomes = run([] {}, [&] { calls = backend.calls() - before; });
    if (mine(outcomes).is_ok()) continue;
    ++failures;
    calls = k + 1;
    EXPECT_THAT(mine(outcomes).to_string(), HasSubstr("injected failure"));
  }
  EXPECT_GE(failures, 20);
}

INSTANTIATE_TEST_SUITE_P(OfRank, EveryCallFailsTest, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace strata

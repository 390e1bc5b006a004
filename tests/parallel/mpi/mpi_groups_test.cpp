// Tests groups over MPI beyond the contract: mismatched calls are found by the sizes of messages.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/mpi_world.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

#include "parallel/ranks.h"

namespace strata {
namespace {

using test::Rank;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MpiGroupsTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<test::Ranks> ranks_ = test::make_ranks(GetParam(), StreamSchedule::threads);
};

TEST_P(MpiGroupsTest, MessagesOfAnotherSizeFailTheGroupOnEveryRank) {
  if (GetParam() == 1) return;
  for (const std::size_t wrong_bytes : {32, 96})
    ranks_->run([&](Rank& rank) -> Status {
      const std::size_t bytes = rank.index() == 0 ? wrong_bytes : 64;
      const Buffer data = rank.allocate(bytes),
                   all = rank.allocate(bytes * static_cast<std::size_t>(GetParam()));
      const BufferView receive = all.view().part(0, bytes * static_cast<std::size_t>(GetParam()));
      Status status = rank.finish(rank.group.all_gather(data.view().part(0, bytes), receive, rank.stream));
      // A rank that finds it says so; a rank that only hears of it passes on what it was told.
      EXPECT_THAT(status.code(), AnyOf(Code::invalid, Code::lost_peer));
      EXPECT_THAT(status.to_string(), AllOf(HasSubstr(" sent "), HasSubstr(" expected ")));
      EXPECT_EQ(rank.group.all_gather(data.view().part(0, bytes), receive, rank.stream), status);
      return status;
    });
}

TEST_P(MpiGroupsTest, ACollectiveAllocatesNothingOnAnyThread) {
  ASSERT_TRUE(AllocCounter::hooked());
  const auto n = static_cast<std::size_t>(GetParam());
  ranks_->must_run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(4000 * n), all = rank.allocate(4000 * n);
    const BufferView mine = data.view().part(0, 4000), whole = all.view().part(0, 4000 * n);
    const auto step = [&]() -> Status {
      STRATA_TRY(rank.group.all_reduce(mine, DType::f32, Reduction::sum, rank.stream));
      STRATA_TRY(rank.group.reduce_scatter(whole, mine, DType::f32, Reduction::sum, rank.stream));
      STRATA_TRY(rank.group.all_to_all(whole, data.view().part(0, 4000 * n), rank.stream));
      return rank.group.broadcast(whole, 0, rank.stream);
    };
    for (int i = 0; i < 3; ++i) STRATA_TRY(step());
    STRATA_TRY(rank.backend.synchronize(rank.stream));
    const std::uint64_t before = AllocCounter::count();
    AllocCounter::set_armed(true);
    Status status;
    for (int i = 0; i < 20 && status.is_ok(); ++i) status = step();
    if (status.is_ok()) status = rank.backend.synchronize(rank.stream);
    AllocCounter::set_armed(false);
    EXPECT_EQ(AllocCounter::count() - before, 0u);
    return status;
  });
}

// A collective declares what it reads and writes.
TEST_P(MpiGroupsTest, WorkOfAnotherStreamThatDoesNotWaitForACollectiveIsFound) {
  const auto checked = test::make_ranks(GetParam(), StreamSchedule::latest_legal);
  checked->must_run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64), copied = rank.allocate(64);
    Stream second = must(rank.backend.create_stream(StreamRole::collective));
    must(rank.backend.discard_async(data.view(), rank.stream));
    STRATA_TRY(rank.group.broadcast(data.view().part(0, 64), 0, rank.stream));
    STRATA_TRY(rank.backend.copy_async(copied.view().part(0, 64), data.view().part(0, 64), second));
    EXPECT_THAT(std::string(rank.backend.synchronize(second).message()),
                HasSubstr("broadcast on collective"));
    return rank.backend.synchronize(rank.stream);
  });
}

TEST_P(MpiGroupsTest, TheWorldSaysWhereItRuns) {
  ranks_->run_worlds([&](World& world) {
    EXPECT_THAT(
        world.description(),
        AllOf(StartsWith(str("rank ", world.rank(), " of ", GetParam(), " on host ")), HasSubstr("(MPI)")));
    const auto refused = world.share(
        [] { return Result<std::shared_ptr<void>>(Status::error(Code::no_space, "there is no room")); });
    EXPECT_EQ(refused.status().to_string(), "no_space: there is no room");
  });
}

TEST_P(MpiGroupsTest, ARankThatDoesSomethingElseThanCreateAGroupIsNamed) {
  if (GetParam() == 1) return;
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  ranks_->run_worlds([&](World& world) {
    if (world.rank() == 1)
      EXPECT_TRUE(world.all_gather("").status().is_ok());
    else
      EXPECT_EQ(world.create_group(*backend).status().to_string(),
                "invalid: rank 1 does something else than create a group");
  });
}

TEST_P(MpiGroupsTest, AProcessOpensOneWorld) {
  EXPECT_TRUE(built_with_mpi());
  EXPECT_THAT(open_mpi_world().status().to_string(), HasSubstr("it can do so only once"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpiGroupsTest, ::testing::ValuesIn(test::rank_counts()));

}  // namespace
}  // namespace strata

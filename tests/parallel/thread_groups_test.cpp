// Tests threads as ranks beyond the contract: they compare their calls when they queue them.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/thread_groups.h>
#include <strata/parallel/world.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

#include "parallel/ranks.h"

namespace strata {
namespace {

using test::Rank;
using ::testing::HasSubstr;

class ThreadGroupsTest : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  std::unique_ptr<test::Ranks> ranks_ = test::make_ranks(GetParam(), StreamSchedule::latest_legal);
};

TEST_P(ThreadGroupsTest, CallsThatDifferAreNamedByEveryRankAndTheNextOnesWork) {
  const int other = size() - 1;
  ranks_->must_run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    const BufferView view = data.view().part(0, rank.index() == other ? 32 : 64);
    const Status differs = rank.group.all_reduce(view, DType::f32, Reduction::sum, rank.stream);
    EXPECT_EQ(differs.code(), Code::invalid);
    EXPECT_THAT(std::string(differs.message()),
                HasSubstr(str("rank 0 queued all_reduce (sum) of 64 bytes of f32, but rank ", other,
                              " queued all_reduce (sum) of 32 bytes of f32")));
    return rank.finish(
        rank.group.all_reduce(data.view().part(0, 64), DType::f32, Reduction::sum, rank.stream));
  });
}

TEST_P(ThreadGroupsTest, ACallThatOneRankGetsWrongFailsOnAll) {
  ranks_->must_run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    const BufferView view = data.view().part(0, rank.index() == 0 ? 63 : 64);
    const Status wrong = rank.group.all_reduce(view, DType::f32, Reduction::sum, rank.stream);
    EXPECT_EQ(wrong.message(), "rank 0: all_reduce: 63 bytes are not a whole number of f32");
    return rank.finish(
        rank.group.all_reduce(data.view().part(0, 64), DType::f32, Reduction::sum, rank.stream));
  });
}

TEST_P(ThreadGroupsTest, FailedWorkOfOneRankIsTheFailureOfAll) {
  const std::vector<Status> outcomes = ranks_->run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    if (rank.index() == size() - 1) {
      const auto fail = [](const int&, ThreadPool&) {
        return Status::error(Code::io_error, "the disk of one rank");
      };
      STRATA_TRY(rank.backend.host_call_async(HostCall("fail", fail, 0), rank.stream));
    }
    return rank.finish(
        rank.group.all_reduce(data.view().part(0, 64), DType::f32, Reduction::sum, rank.stream));
  });
  for (const Status& status : outcomes) EXPECT_EQ(status.to_string(), "io_error: the disk of one rank");
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadGroupsTest, ::testing::Values(2, 3, 8));

TEST(ThreadGroupsTest, SizesAndBackendsThatCannotWorkAreRefused) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  EXPECT_EQ(create_thread_groups(0, *backend).status().message(),
            "a group of threads has 1 to 16 ranks, not 0");
  EXPECT_EQ(create_thread_groups(17, *backend).status().code(), Code::invalid);
  EXPECT_EQ(create_thread_worlds(17).status().code(), Code::invalid);
  EXPECT_EQ(create_thread_worlds(0).status().code(), Code::invalid);
}

class ThreadWorldsTest : public ::testing::TestWithParam<int> {
 protected:
  void on_every_rank(const std::function<void(World&)>& body) {
    std::vector<std::thread> threads;
    for (auto& world : worlds_) threads.emplace_back([&] { body(*world); });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::unique_ptr<World>> worlds_ = must(create_thread_worlds(GetParam()));
};

TEST_P(ThreadWorldsTest, TheRanksOfAProcessShareOneObject) {
  std::vector<std::shared_ptr<void>> shared(worlds_.size());
  on_every_rank([&](World& world) {
    shared[static_cast<std::size_t>(world.rank())] =
        must(world.share([] { return Result<std::shared_ptr<void>>(std::make_shared<int>(7)); }));
    const auto refused = world.share(
        [] { return Result<std::shared_ptr<void>>(Status::error(Code::no_space, "there is no room")); });
    EXPECT_EQ(refused.status().to_string(), "no_space: there is no room");
  });
  for (const auto& object : shared) EXPECT_EQ(object, shared.front());
  EXPECT_EQ(shared.front().use_count(), std::ssize(shared)) << "the world does not keep it alive";
}

TEST_P(ThreadWorldsTest, ARankThatLeavesIsNamed) {
  if (GetParam() == 1) return;
  worlds_.pop_back();
  on_every_rank([&](World& world) {
    EXPECT_EQ(world.all_gather("anyone?").status().to_string(),
              str("lost_peer: rank ", world.size() - 1, " of ", world.size(), " has left the group"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadWorldsTest, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace strata

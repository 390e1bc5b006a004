// What the ranks of a run tell each other outside of streams.
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <strata/parallel/world.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {
namespace {

class WorldTest : public ::testing::TestWithParam<int> {
 protected:
  void on_every_rank(const std::function<void(World&)>& body) {
    std::vector<std::thread> threads;
    for (auto& world : worlds_) threads.emplace_back([&] { body(*world); });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::unique_ptr<World>> worlds_ = must(create_thread_worlds(GetParam()));
};

TEST_P(WorldTest, EveryRankLearnsTheTextsOfAll) {
  std::vector<std::string> want;
  for (int rank = 0; rank < GetParam(); ++rank) want.push_back(str("I am ", rank, std::string(1000, 'x')));
  on_every_rank([&](World& world) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(must(world.all_gather(want[static_cast<std::size_t>(world.rank())])), want);
      EXPECT_EQ(must(world.all_gather("")), std::vector<std::string>(want.size()));
    }
  });
}

TEST_P(WorldTest, TheRanksOfAProcessShareOneObject) {
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

TEST_P(WorldTest, AGroupOfAllRanksExchangesDataOnTheirBackend) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  on_every_rank([&](World& world) {
    const auto group = must(world.create_group(*backend));
    EXPECT_EQ(group->rank(), world.rank());
    EXPECT_EQ(group->size(), world.size());
    Stream stream = must(backend->create_stream(StreamRole::collective));
    const Buffer data = must(backend->allocate(MemoryKind::pinned, sizeof(float)));
    *reinterpret_cast<float*>(data.view().data) = static_cast<float>(world.rank() + 1);
    must(group->all_reduce(data.view(), DType::f32, Reduction::sum, stream));
    must(backend->synchronize(stream));
    EXPECT_EQ(*reinterpret_cast<float*>(data.view().data),
              static_cast<float>(world.size() * (world.size() + 1)) / 2);
  });
}

TEST_P(WorldTest, ARankThatLeavesIsNamed) {
  if (GetParam() == 1) return;
  worlds_.pop_back();
  on_every_rank([&](World& world) {
    EXPECT_EQ(world.all_gather("anyone?").status().to_string(),
              str("lost_peer: rank ", world.size() - 1, " of ", world.size(), " has left the group"));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, WorldTest, ::testing::Values(1, 2, 3, 8));

TEST(WorldTest, TooManyRanksAreRefused) {
  EXPECT_EQ(create_thread_worlds(17).status().code(), Code::invalid);
  EXPECT_EQ(create_thread_worlds(0).status().code(), Code::invalid);
}

}  // namespace
}  // namespace strata

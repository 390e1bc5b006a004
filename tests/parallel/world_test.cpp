// Tests the exchanges of a run's ranks outside of streams.
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <strata/parallel/world.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

#include "parallel/ranks.h"

namespace strata {
namespace {

class WorldTest : public ::testing::TestWithParam<int> {
 protected:
  void on_every_rank(const std::function<void(World&)>& body) { ranks_->run_worlds(body); }
  std::unique_ptr<test::Ranks> ranks_ = test::make_ranks(GetParam(), StreamSchedule::threads);
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

INSTANTIATE_TEST_SUITE_P(Ranks, WorldTest, ::testing::ValuesIn(test::rank_counts()));

}  // namespace
}  // namespace strata

#include <strata/runtime/thread_pool.h>

#include <atomic>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryItemRunsOnce) {
  const auto pool = must(ThreadPool::create(GetParam()));
  std::vector<std::atomic<int>> hits(1000);
  pool->parallel_for(1000, [&](std::int64_t i) { hits[static_cast<std::size_t>(i)].fetch_add(1); });
  for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
}

TEST_P(ThreadPoolTest, CallsNest) {
  const auto pool = must(ThreadPool::create(GetParam()));
  std::atomic<int> total{0};
  pool->parallel_for(8,
                     [&](std::int64_t) { pool->parallel_for(8, [&](std::int64_t) { total.fetch_add(1); }); });
  EXPECT_EQ(total.load(), 64);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 5));

TEST(ThreadPoolBoundsTest, ABadCountIsRefusedWithTheNumber) {
  EXPECT_EQ(ThreadPool::create(-1).status().code(), Code::invalid);
  EXPECT_NE(ThreadPool::create(5000).status().message().find("5000"), std::string_view::npos);
}

}  // namespace
}  // namespace strata

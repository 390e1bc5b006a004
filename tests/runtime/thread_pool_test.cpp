#include <strata/runtime/threads/thread_pool.h>

#include <algorithm>
#include <atomic>
#include <ostream>
#include <thread>
#include <vector>

#include <sched.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>

namespace strata {
namespace {

using ::testing::ElementsAre;

/// A pool by its number of threads, or for a share whose nodes have these CPUs and threads.
struct PoolConfig {
  const char* name;
  int threads = 0;
  std::vector<CoreShare::Node> nodes = {};
};
void PrintTo(const PoolConfig& kind, std::ostream* out) { *out << kind.name; }

// One CPU, which every machine has, is enough: the pool's nodes need not be different ones.
int some_cpu() { return must(read_topology()).usable_cores.front().cpus.front(); }
int other_cpu() { return must(read_topology()).usable_cores.back().cpus.back(); }

CoreShare bound_share(std::vector<CoreShare::Node> nodes) {
  CoreShare share;
  share.nodes = std::move(nodes);
  share.bound = true;
  return share;
}
std::unique_ptr<ThreadPool> make(const PoolConfig& kind) {
  return kind.nodes.empty() ? must(ThreadPool::create(kind.threads))
                            : must(ThreadPool::create(bound_share(kind.nodes)));
}

class ThreadPoolTest : public ::testing::TestWithParam<PoolConfig> {
 protected:
  std::unique_ptr<ThreadPool> pool_ = make(GetParam());
};

TEST_P(ThreadPoolTest, EveryItemRunsOnce) {
  for (const std::int64_t n : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n) + 1);
    pool_->parallel_for(n, [&](std::int64_t i) { hits[static_cast<std::size_t>(i)].fetch_add(1); });
    pool_->parallel_for_numa_local(n,
                                   [&](std::int64_t i) { hits[static_cast<std::size_t>(i)].fetch_add(1); });
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(hits[static_cast<std::size_t>(i)].load(), 2) << i;
    EXPECT_EQ(hits.back().load(), 0);
  }
}

TEST_P(ThreadPoolTest, CallsNest) {
  std::atomic<int> total{0};
  pool_->parallel_for(8, [&](std::int64_t) {
    pool_->parallel_for(8, [&](std::int64_t) { total.fetch_add(1); });
    pool_->parallel_for_numa_local(8, [&](std::int64_t) { total.fetch_add(1); });
  });
  EXPECT_EQ(total.load(), 128);
}

TEST_P(ThreadPoolTest, ConcurrentCallersDoNotInterfere) {
  std::atomic<std::int64_t> totals[3] = {};
  {
    std::vector<std::jthread> callers;
    for (std::size_t c = 0; c < 3; ++c)
      callers.emplace_back([&, c] {
        for (int call = 0; call < 200; ++call)
          pool_->parallel_for(20, [&, c](std::int64_t i) { totals[c].fetch_add(i); });
      });
  }
  for (const auto& total : totals) EXPECT_EQ(total.load(), 200 * 190);
}

// The items wait for each other, so this hangs if fewer threads run than the pool reports, or if one sleeps
// on.
TEST_P(ThreadPoolTest, AllThreadsRunItemsConcurrently) {
  std::atomic<int> arrived{0};
  const int all = pool_->threads();
  pool_->parallel_for(all, [&](std::int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < all) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), all);
}

TEST_P(ThreadPoolTest, TheCallerSeesTheItemsWrites) {
  std::vector<int> plain(1000, 0);
  for (int call = 0; call < 50; ++call)
    pool_->parallel_for(1000, [&](std::int64_t i) { ++plain[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(plain, std::vector<int>(1000, 50));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ThreadPoolTest,
    ::testing::Values(
        PoolConfig{"one", 1}, PoolConfig{"two", 2}, PoolConfig{"five", 5},
        PoolConfig{"one_bound_node", 0, {{0, 3, {some_cpu()}}}},
        PoolConfig{"two_nodes", 0, {{0, 1, {some_cpu()}}, {1, 1, {other_cpu()}}}},
        PoolConfig{"uneven_nodes", 0, {{0, 3, {some_cpu()}}, {1, 1, {other_cpu()}}, {4, 2, {some_cpu()}}}}),
    [](const auto& kind) { return std::string(kind.param.name); });

TEST(NumaThreadPoolTest, NumaLocalLoopsRunEachPartOnItsOwnNode) {
  const int here = some_cpu(), there = other_cpu();
  if (here == there) GTEST_SKIP() << "one hardware thread: every node would be the same";
  const auto pool = must(ThreadPool::create(bound_share({{0, 1, {here}}, {1, 1, {there}}})));
  EXPECT_THAT(std::vector<int>(pool->nodes().begin(), pool->nodes().end()), ElementsAre(0, 1));
  std::vector<int> cpu_of(9, -1);
  pool->parallel_for_numa_local(
      9, [&](std::int64_t i) { cpu_of[static_cast<std::size_t>(i)] = ::sched_getcpu(); });
  EXPECT_THAT(cpu_of, ElementsAre(here, here, here, here, there, there, there, there, there));
}

TEST(NumaThreadPoolTest, PartsAreProportionalToTheThreads) {
  const auto pool = must(ThreadPool::create(bound_share({{0, 3, {some_cpu()}}, {1, 1, {other_cpu()}}})));
  std::vector<std::thread::id> thread_of(40);
  pool->parallel_for_numa_local(
      40, [&](std::int64_t i) { thread_of[static_cast<std::size_t>(i)] = std::this_thread::get_id(); });
  EXPECT_EQ(std::count(thread_of.begin(), thread_of.end(), thread_of.back()),
            10);  // the second node's thread
  for (std::size_t i = 30; i < 40; ++i) EXPECT_EQ(thread_of[i], thread_of.back()) << i;
}

// The second node's only worker is held by its first item until every other item is done: with a static
// partition this would hang.
TEST(NumaThreadPoolTest, ANodeThatIsDoneStealsFromTheOthers) {
  const auto pool = must(ThreadPool::create(bound_share({{0, 1, {some_cpu()}}, {1, 1, {other_cpu()}}})));
  constexpr int kItems = 64;
  std::atomic<int> done{0};
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> held{false};
  pool->parallel_for(kItems, [&](std::int64_t) {
    if (std::this_thread::get_id() != caller && !held.exchange(true))
      while (done.load() < kItems - 1) std::this_thread::yield();
    done.fetch_add(1);
  });
  EXPECT_EQ(done.load(), kItems);
}

TEST(NumaThreadPoolTest, ACallAllocatesNothing) {
  const auto pool = must(ThreadPool::create(bound_share({{0, 2, {some_cpu()}}, {1, 2, {other_cpu()}}})));
  std::atomic<int> total{0};
  AllocCounter::set_armed(true);
  const std::uint64_t before = AllocCounter::count();
  for (int call = 0; call < 20; ++call) pool->parallel_for(50, [&](std::int64_t) { total.fetch_add(1); });
  const std::uint64_t after = AllocCounter::count();
  AllocCounter::set_armed(false);
  EXPECT_EQ(after, before);
  EXPECT_EQ(total.load(), 1000);
}

TEST(ThreadPoolBoundsTest, ABadCountIsRefusedWithTheNumber) {
  EXPECT_EQ(ThreadPool::create(-1).status().code(), Code::invalid);
  EXPECT_NE(ThreadPool::create(5000).status().message().find("5000"), std::string_view::npos);
  const std::vector<CoreShare::Node> nodes(65, CoreShare::Node{0, 1, {some_cpu()}});
  EXPECT_NE(ThreadPool::create(bound_share(nodes)).status().message().find("65 NUMA nodes"),
            std::string_view::npos);
}

TEST(ThreadPoolBoundsTest, MissingCpusAreNamed) {
  const Status refused = ThreadPool::create(bound_share({{0, 1, {4000, 4001}}, {1, 1, {4003}}})).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("4000-4001"), std::string_view::npos) << refused.message();
}

}  // namespace
}  // namespace strata

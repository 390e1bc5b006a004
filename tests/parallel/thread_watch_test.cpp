// A thread that hangs in code of the caller while the others wait for it.
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/world.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/threads/thread_pool.h>

#include "threads/thread_watch.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

class ThreadWatchTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3, kHung = 1;

  WatchOptions options(double user_code_s, double patience_s) {
    return {.user_code_s = user_code_s, .patience_s = patience_s, .warn = [this](std::string_view text) {
              const MutexLock lock(mutex_);
              warnings_.emplace_back(text);
            }};
  }
  /// Rank 1 stays in user code until the others have ended `wait`, or for `at_most`.
  void run(const WatchOptions& options, std::chrono::milliseconds at_most,
           const std::function<Status(World&)>& wait) {
    auto worlds = must(create_thread_worlds(kRanks));
    worlds[0]->set_watch(options);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        World& world = *worlds[static_cast<std::size_t>(rank)];
        if (rank == kHung) hang(world, at_most);
        outcomes_[static_cast<std::size_t>(rank)] = wait(world);
        ++ended_;
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::string> warnings() {
    const MutexLock lock(mutex_);
    return warnings_;
  }
  std::vector<Status> outcomes_ = std::vector<Status>(kRanks);

 private:
  void hang(World& world, std::chrono::milliseconds at_most) {
    world.progress().begin_step(5);
    world.progress().begin_micro_batch(2, 10);
    const RankProgress::UserCode in_source(&world.progress(), "the batch source");
    const auto end = std::chrono::steady_clock::now() + at_most;
    while (ended_ < kRanks - 1 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  std::atomic<int> ended_{0};
  Mutex mutex_;
  std::vector<std::string> warnings_ STRATA_GUARDED_BY(mutex_);
};

TEST_F(ThreadWatchTest, RanksThatWaitForAHungOneAreToldWhereItIs) {
  run(options(0.1, 0.5), std::chrono::minutes(1), [](World& world) { return world.all_gather("").status(); });
  for (const int rank : {0, 2}) {
    const Status& outcome = outcomes_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code(), Code::lost_peer);
    EXPECT_THAT(std::string(outcome.message()), HasSubstr("rank 1 of 3 has left the group: it has been in "
                                                          "step 5, micro-batch 2, the batch source for"));
  }
  ASSERT_EQ(warnings().size(), 1U);
  EXPECT_THAT(warnings()[0], HasSubstr("rank 1 of 3: it has been in step 5"));
  EXPECT_EQ(outcomes_[kHung].code(), Code::lost_peer);  // once it comes back
}

TEST_F(ThreadWatchTest, AGroupOfTheWorldIsWatchedAndSoAreItsParts) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  auto worlds = must(create_thread_worlds(2));
  worlds[0]->set_watch(options(0.1, 0.3));
  std::atomic<bool> over{false};
  std::thread hung([&] {
    auto part = must(must(worlds[1]->create_group(*backend))->split(std::vector<int>{1, 0}));
    worlds[1]->progress().begin_step(9);
    const RankProgress::UserCode in_source(&worlds[1]->progress(), "the batch source");
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  const auto group = must(worlds[0]->create_group(*backend));
  const auto part = must(group->split(std::vector<int>{1, 0}));
  Stream stream = must(backend->create_stream(StreamRole::collective));
  const Buffer data = must(backend->allocate(MemoryKind::pinned, 64));
  const Status outcome = part->all_reduce(data.view().part(0, 64), DType::f32, Reduction::sum, stream);
  over = true;
  hung.join();
  EXPECT_EQ(outcome.code(), Code::lost_peer);
  EXPECT_THAT(std::string(outcome.message()), HasSubstr("step 9"));
}

TEST_F(ThreadWatchTest, ASlowRankIsNamedAndWaitedFor) {
  run(options(0.1, 60), std::chrono::milliseconds(1200),
      [](World& world) { return world.all_gather("").status(); });
  for (const Status& outcome : outcomes_) EXPECT_TRUE(outcome.is_ok()) << outcome.to_string();
  ASSERT_FALSE(warnings().empty());
}

// The rank keeps its group, as one does that still unwinds.
TEST_F(ThreadWatchTest, AGroupLearnsThatARankHasGivenUp) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  auto worlds = must(create_thread_worlds(2));
  worlds[0]->set_watch({.heartbeat_s = 0});
  std::unique_ptr<ProcessGroup> kept;
  std::thread failing([&] {
    kept = must(worlds[1]->create_group(*backend));
    worlds[1]->give_up(Status::error(Code::io_error, "a disk is gone"));
  });
  const auto group = must(worlds[0]->create_group(*backend));
  Stream stream = must(backend->create_stream(StreamRole::collective));
  const Buffer data = must(backend->allocate(MemoryKind::pinned, 64));
  const Status outcome = group->all_reduce(data.view().part(0, 64), DType::f32, Reduction::sum, stream);
  failing.join();
  EXPECT_EQ(outcome.code(), Code::lost_peer);
  EXPECT_THAT(std::string(outcome.message()), HasSubstr("rank 1 of 2 has left the group: io_error: a disk"));
}

TEST_F(ThreadWatchTest, AWarningMayCallTheWorldAndThrow) {
  auto worlds = must(create_thread_worlds(2));
  std::atomic<int> warnings{0};
  const auto warn = [&](std::string_view) {
    ++warnings;
    worlds[0]->set_watch({});
    worlds[1]->give_up(Status::error(Code::io_error, "a disk is gone"));
    throw std::runtime_error("a terminal that is gone");
  };
  worlds[0]->set_watch({.user_code_s = 0.1, .patience_s = 60, .warn = warn});
  const RankProgress::UserCode in_source(&worlds[1]->progress(), "the batch source");
  EXPECT_THAT(worlds[0]->all_gather("").status().to_string(), HasSubstr("a disk is gone"));
  EXPECT_EQ(warnings, 1);
}

TEST_F(ThreadWatchTest, ARankThatWasLateIsSaidToGoOnThoughNobodyWaitsForIt) {
  detail::ThreadWatch watch(3);
  watch.set({.user_code_s = 0.1, .patience_s = 60});
  const auto look = [&](int missing) {
    return watch.find_lost(std::vector<int>{missing}, detail::ThreadWatch::now_ns()).warnings;
  };
  {
    const RankProgress::UserCode in_source(&watch.progress(1), "the batch source");
    EXPECT_TRUE(look(1).empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_EQ(look(1).size(), 1U);
    EXPECT_TRUE(look(1).empty());
  }
  EXPECT_EQ(look(2), std::vector<std::string>{"rank 1 of 3: it goes on"});
  EXPECT_TRUE(look(2).empty());
}

TEST_F(ThreadWatchTest, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  detail::ThreadWatch watch(2);
  watch.set({.user_code_s = 0.1, .patience_s = 0.5});
  const RankProgress::UserCode in_source(&watch.progress(1), "the batch source");
  const auto is_lost = [&](std::int64_t waited_ns) {
    const std::int64_t since_ns = detail::ThreadWatch::now_ns() - waited_ns;
    return watch.find_lost(std::vector<int>{1}, since_ns).loss.has_value();
  };
  EXPECT_FALSE(is_lost(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_FALSE(is_lost(1'100'000'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_TRUE(is_lost(250'000'000));
}

TEST_F(ThreadWatchTest, WithoutHeartbeatsNobodyIsWatched) {
  WatchOptions off = options(0.1, 0.2);
  off.heartbeat_s = 0;
  run(off, std::chrono::milliseconds(800), [](World& world) { return world.all_gather("").status(); });
  for (const Status& outcome : outcomes_) EXPECT_TRUE(outcome.is_ok()) << outcome.to_string();
  EXPECT_TRUE(warnings().empty());
}

}  // namespace
}  // namespace strata

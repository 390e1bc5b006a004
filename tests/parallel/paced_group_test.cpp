// Collectives that take the time of a network, on a clock that only the test advances.
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <strata/parallel/paced_group.h>
#include <strata/parallel/thread_groups.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/backend/simulation.h>
#include <strata/runtime/threads/thread_pool.h>

#include "support/manual_clock.h"

namespace strata {
namespace {

constexpr NetworkRate kRate{.bytes_per_s = 1e6, .latency_s = 50e-6};

/// Two ranks as threads whose collectives are paced, each with a stream and a buffer of 16 KiB.
class PacedGroupTest : public ::testing::Test {
 protected:
  PacedGroupTest() {
    for (auto& group : must(create_thread_groups(2, *backend_)))
      groups_.push_back(create_paced_group(std::move(group), *backend_, kRate));
  }
  /// Calls body(rank, group, stream, memory) on a thread for each rank.
  template <class Body>
  void on_all_ranks(const Body& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < groups_.size(); ++rank)
      threads.emplace_back([&, rank] {
        Stream stream = must(backend_->create_stream(StreamRole::collective));
        const Buffer memory = must(backend_->allocate(MemoryKind::pinned, 16384));
        body(static_cast<int>(rank), *groups_[rank], stream, memory.view());
        must(backend_->synchronize(stream));
      });
    for (std::thread& thread : threads) thread.join();
  }

  test::ManualClock clock_;
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = must(create_host_backend({.paced_compute = true}, *pool_, clock_));
  std::vector<std::unique_ptr<ProcessGroup>> groups_;
};

TEST_F(PacedGroupTest, ACollectiveTakesTheLatencyAndTheTimeOfItsBytes) {
  std::thread time([&] {
    // Each rank sends 4096 bytes: 50 us + 4096 us; and then 2048 of each rank's 4096, to the other one.
    EXPECT_EQ(clock_.await_waiters(2), std::vector<std::int64_t>(2, 4146000));
    clock_.advance_to(4146000);
    EXPECT_EQ(clock_.await_waiters(2), std::vector<std::int64_t>(2, 4146000 + 2098000));
    clock_.advance_to(10000000);
  });
  on_all_ranks([](int rank, ProcessGroup& group, Stream& stream, BufferView memory) {
    const BufferView all = memory.part(0, 8192), own = all.part(static_cast<std::size_t>(rank) * 4096, 4096);
    own.data[0] = std::byte{static_cast<unsigned char>(rank + 1)};
    must(group.all_gather(own, all, stream));
    must(group.all_to_all(own, memory.part(8192, 4096), stream));
    must(stream.backend()->synchronize(stream));
    EXPECT_EQ(all.data[0], std::byte{1});  // the data have moved, too
    EXPECT_EQ(all.data[4096], std::byte{2});
  });
  time.join();
}

TEST_F(PacedGroupTest, GroupsThatItIsDividedIntoArePacedAndCounted) {
  std::thread time([&] {
    EXPECT_EQ(clock_.await_waiters(2), std::vector<std::int64_t>(2, 4146000));
    clock_.advance_to(4146000);
  });
  on_all_ranks([](int rank, ProcessGroup& group, Stream& stream, BufferView memory) {
    const auto reversed = must(group.split(std::vector{1, 0}));
    EXPECT_EQ(reversed->rank(), 1 - rank);
    must(reversed->all_gather(memory.part(0, 4096), memory.part(4096, 8192), stream));
    EXPECT_EQ(reversed->counters().sent_bytes, 4096u);
    EXPECT_EQ(group.counters().calls, 0u);
  });
  time.join();
}

TEST(NetworkRateTest, ASimulatedCollectiveTakesWhatTheRateSays) {
  const auto machine = Simulation::create({});
  const auto group = create_simulated_group(4, 1, machine->backend(), {.between = kRate});
  Stream stream = must(machine->backend().create_stream(StreamRole::collective));
  const Buffer memory = must(machine->backend().allocate(MemoryKind::pinned, 16384));
  const BufferView all = memory.view();
  must(group->all_gather(all.part(4096, 4096), all, stream));
  must(machine->backend().synchronize(stream));
  EXPECT_EQ(machine->clock().now_ns(), 50000 + 3 * 4096000);
}

TEST(NetworkRateTest, WithoutARateOrWithoutOtherRanksNothingTakesTime) {
  EXPECT_EQ(duration_ns({}, {.sent = 1000, .received = 1000}), 0);
  EXPECT_EQ(duration_ns(kRate, {}), 0);
  EXPECT_EQ(duration_ns(kRate, {.sent = 10, .received = 1000}), 50000 + 1000000);
}

}  // namespace
}  // namespace strata

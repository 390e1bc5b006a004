#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "store/io/transfer_scheduler.h"

namespace strata::test {
namespace {

using detail::BlockTask;
using detail::Extent;
using detail::TransferScheduler;

constexpr std::size_t kBlock = 4096;

// Only its addresses are used; nothing is transferred.
std::array<std::byte, 64 * kBlock> memory;

void push(TransferScheduler& scheduler, std::uint32_t index, bool write, std::vector<std::size_t> blocks) {
  std::vector<Extent> extents;
  for (std::uint32_t file = 0; file < blocks.size(); ++file)
    if (blocks[file] > 0) extents.push_back({file, 1000 * kBlock * index, blocks[file] * kBlock});
  scheduler.push(index, {write, memory.data(), extents});
}

std::vector<BlockTask> take_all(TransferScheduler& scheduler) {
  std::vector<BlockTask> taken;
  while (scheduler.has_task()) taken.push_back(scheduler.next_task());
  return taken;
}

// "0r1w": a block of read 0, then one of write 1.
std::string order_of(const std::vector<BlockTask>& tasks) {
  std::string order;
  for (const BlockTask& task : tasks) order += std::to_string(task.index) + (task.block.write ? "w" : "r");
  return order;
}

TEST(TransferSchedulerTest, DirectionsAlternateAndEachIsServedInOrder) {
  TransferScheduler scheduler(4, 1, kBlock, {100, 1000});
  push(scheduler, 0, false, {2});
  push(scheduler, 1, false, {2});
  push(scheduler, 2, true, {1});
  push(scheduler, 3, true, {2});
  EXPECT_EQ(order_of(take_all(scheduler)), "0r2w0r3w1r3w1r");
}

TEST(TransferSchedulerTest, FullDirectionLeavesTheOtherItsShare) {
  TransferScheduler scheduler(2, 1, kBlock, {3, 1000});
  push(scheduler, 0, false, {8});
  ASSERT_EQ(order_of(take_all(scheduler)), "0r0r0r");
  push(scheduler, 1, true, {8});
  EXPECT_EQ(order_of(take_all(scheduler)), "1w1w1w");
}

TEST(TransferSchedulerTest, ReleasedBlockMakesRoomBeforeItsTransferIsReported) {
  TransferScheduler scheduler(1, 1, kBlock, {2, 1000});
  push(scheduler, 0, true, {3});
  const std::vector<BlockTask> out = take_all(scheduler);
  ASSERT_EQ(out.size(), 2u);
  scheduler.release(out[1]);
  EXPECT_EQ(order_of(take_all(scheduler)), "0w");
  EXPECT_FALSE(scheduler.complete(out[1], Status::ok()).has_value());
}

TEST(TransferSchedulerTest, FailureDropsTheUnissuedBlocks) {
  TransferScheduler scheduler(2, 1, kBlock, {1, 1000});
  push(scheduler, 0, true, {9});
  push(scheduler, 1, true, {1});
  const BlockTask first = scheduler.next_task();
  scheduler.release(first);
  const std::optional<Status> outcome = scheduler.complete(first, Status::error(Code::io_error, "gone"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), Code::io_error);
  EXPECT_EQ(order_of(take_all(scheduler)), "1w");
}

TEST(TransferSchedulerTest, OnceAbandonedItIssuesAndReportsNothing) {
  TransferScheduler scheduler(3, 1, kBlock, {1, 1000});
  push(scheduler, 0, false, {1});
  push(scheduler, 1, false, {2});
  const BlockTask in_flight = scheduler.next_task();
  scheduler.abandon();
  push(scheduler, 2, true, {1});
  scheduler.release(in_flight);
  EXPECT_FALSE(scheduler.has_task());
  EXPECT_FALSE(scheduler.complete(in_flight, Status::ok()).has_value());
}

// "1:2@3": file 1, block 2 of the file's extent, block 3 of the transfer.
std::string places_of(const std::vector<BlockTask>& tasks, std::uint32_t index) {
  std::string places;
  for (const BlockTask& task : tasks)
    places += std::to_string(task.block.file) + ":" +
              std::to_string(task.block.offset / kBlock - 1000 * index) + "@" +
              std::to_string(task.at / kBlock) + " ";
  return places;
}

TEST(TransferSchedulerTest, ExtentsHoldTheTransferOneAfterTheOtherAndTheirFilesTakeTurns) {
  TransferScheduler scheduler(4, 2, kBlock, {100, 100});
  push(scheduler, 3, true, {3, 1});
  const std::vector<BlockTask> tasks = take_all(scheduler);
  EXPECT_EQ(places_of(tasks, 3), "0:0@0 1:0@3 0:1@1 0:2@2 ");
  for (const BlockTask& task : tasks) EXPECT_EQ(task.block.data, memory.data() + task.at);
}

TEST(TransferSchedulerTest, FileThatReleasesNothingLeavesTheOthersTheirShare) {
  TransferScheduler scheduler(3, 2, kBlock, {2, 100});
  push(scheduler, 0, false, {4, 4});
  push(scheduler, 1, false, {4, 4});
  std::vector<BlockTask> out = take_all(scheduler);
  ASSERT_EQ(out.size(), 4u);
  for (int i = 0; i < 6; ++i) {
    const auto fast =
        std::find_if(out.begin(), out.end(), [](const BlockTask& p) { return p.block.file == 0; });
    scheduler.release(*fast);
    EXPECT_FALSE(scheduler.complete(*fast, Status::ok()).has_value());
    *fast = scheduler.next_task();
    EXPECT_EQ(fast->block.file, 0u);
  }
  EXPECT_FALSE(scheduler.has_task());
}

TEST(TransferSchedulerTest, PerFileLimitCoversBothDirections) {
  TransferScheduler scheduler(2, 1, kBlock, {2, 3});
  push(scheduler, 0, false, {4});
  push(scheduler, 1, true, {4});
  EXPECT_EQ(order_of(take_all(scheduler)), "0r1w0r");
}

TEST(TransferSchedulerTest, TransferCompletesWithItsLastExtent) {
  TransferScheduler scheduler(1, 3, kBlock, {1, 1});
  push(scheduler, 0, true, {1, 0, 1});
  const std::vector<BlockTask> out = take_all(scheduler);
  ASSERT_EQ(out.size(), 2u);
  scheduler.release(out[1]);
  EXPECT_FALSE(scheduler.complete(out[1], Status::ok()).has_value());
  scheduler.release(out[0]);
  EXPECT_TRUE(scheduler.complete(out[0], Status::ok()).has_value());
}

// The failing transfer is at the head of one file's queue and behind another transfer in the other file's.
TEST(TransferSchedulerTest, FailureInOneFileDropsTheBlocksThatWaitInTheOthers) {
  TransferScheduler scheduler(3, 2, kBlock, {1, 1});
  push(scheduler, 0, true, {0, 2});
  push(scheduler, 1, true, {2, 2});
  push(scheduler, 2, true, {0, 1});
  const std::vector<BlockTask> out = take_all(scheduler);
  ASSERT_EQ(order_of(out), "1w0w");
  scheduler.release(out[0]);
  const std::optional<Status> outcome = scheduler.complete(out[0], Status::error(Code::io_error, "gone"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), Code::io_error);
  push(scheduler, 1, true, {1, 0});
  EXPECT_EQ(order_of({scheduler.next_task()}), "1w");
  scheduler.release(out[1]);
  EXPECT_FALSE(scheduler.complete(out[1], Status::ok()).has_value());
  const BlockTask rest = scheduler.next_task();
  scheduler.release(rest);
  EXPECT_EQ(order_of({rest, scheduler.next_task()}), "0w2w");
}

}  // namespace
}  // namespace strata::test

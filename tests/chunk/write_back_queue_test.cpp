#include <gtest/gtest.h>

#include "chunk/parts_fixture.h"

namespace strata {
namespace {

using test::bare_placement;
using test::param;
using test::PartsFixture;
using test::small_layout;
using test::with_homes;

/// Parameters whose home is nvme.
std::unique_ptr<PartsFixture> homes_on_nvme(const ChunkLayout& layout, std::uint32_t pinned,
                                            std::uint32_t spares) {
  return std::make_unique<PartsFixture>(
      layout, with_homes(bare_placement(layout, 1, pinned, spares), Payload::param, Tier::nvme));
}

TEST(WriteBackQueueTest, AWriteIsPendingFromItsPushUntilItWasWaitedFor) {
  const auto fixture = homes_on_nvme(small_layout(1), 1, 1);
  fixture->push_written(param(0), fixture->cpu);
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::writing_back);
  EXPECT_EQ(fixture->residency.state(param(0), Tier::nvme), Residency::filling);
  must(fixture->write_backs.wait_all());
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::clean);
  EXPECT_EQ(fixture->residency.state(param(0), Tier::nvme), Residency::clean);
  EXPECT_TRUE(fixture->mover.stored(param(0)));
}

TEST(WriteBackQueueTest, AWriteIsSubmittedOnceItsContentsAreFinal) {
  const auto fixture = homes_on_nvme(small_layout(1), 1, 1);
  fixture->push_written(param(0), fixture->cpu);
  must(fixture->write_backs.pump());
  EXPECT_EQ(fixture->mover.writes, 0);
  must(fixture->backend->synchronize(fixture->cpu));
  must(fixture->write_backs.pump());
  must(fixture->write_backs.pump());
  EXPECT_EQ(fixture->mover.writes, 1);
  must(fixture->write_backs.wait_all());
}

TEST(WriteBackQueueTest, NoWriteOvertakesAnOlderOne) {
  const auto fixture = homes_on_nvme(small_layout(2), 2, 2);
  fixture->push_written(param(0), fixture->cpu);
  fixture->push_written(param(1), fixture->compute);
  must(fixture->backend->synchronize(fixture->compute));
  must(fixture->write_backs.pump());
  EXPECT_EQ(fixture->mover.writes, 0);
  must(fixture->write_backs.submit_all());
  EXPECT_EQ(fixture->mover.writes, 2);
  must(fixture->write_backs.wait_all());
}

TEST(WriteBackQueueTest, AClassWithoutSparesWaitsForItsOwnOldestWrite) {
  const auto fixture = homes_on_nvme(small_layout(3, 1), 3, 2);
  for (const ChunkId c : {0u, 1u}) fixture->push_written(param(c), fixture->cpu);
  must(fixture->write_backs.wait_for_spare(param(3)));  // has another class
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::writing_back);
  must(fixture->write_backs.wait_for_spare(param(2)));
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::clean);
  EXPECT_EQ(fixture->residency.state(param(1), Tier::pinned), Residency::writing_back);
  must(fixture->write_backs.wait_all());
}

TEST(WriteBackQueueTest, AFailedWriteLeavesItsCopyDirtyAndTheOthersPending) {
  const auto fixture = homes_on_nvme(small_layout(2), 2, 2);
  for (const ChunkId c : {0u, 1u}) fixture->push_written(param(c), fixture->cpu);
  fixture->mover.fail_writes = 1;
  EXPECT_EQ(fixture->write_backs.wait_all().code(), Code::io_error);
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::dirty);
  EXPECT_EQ(fixture->residency.state(param(0), Tier::nvme), Residency::absent);
  EXPECT_EQ(fixture->residency.state(param(1), Tier::pinned), Residency::writing_back);
  must(fixture->write_backs.wait_all());
  EXPECT_EQ(fixture->residency.state(param(1), Tier::pinned), Residency::clean);
}

TEST(WriteBackQueueTest, DrainingContinuesAfterAFailure) {
  const auto fixture = homes_on_nvme(small_layout(2), 2, 2);
  for (const ChunkId c : {0u, 1u}) fixture->push_written(param(c), fixture->cpu);
  fixture->mover.fail_writes = 1;
  fixture->write_backs.drain();
  EXPECT_EQ(fixture->mover.in_flight(), 0u);
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::dirty);
  EXPECT_EQ(fixture->residency.state(param(1), Tier::pinned), Residency::clean);
}

TEST(WriteBackQueueTest, TheYoungestTwoThirdsOfThePinnedWindowAreRecent) {
  const auto fixture = homes_on_nvme(small_layout(3), 3, 6);
  for (const ChunkId c : {0u, 1u}) fixture->push_written(param(c), fixture->cpu);
  EXPECT_TRUE(fixture->write_backs.is_recent(param(0), 0));
  EXPECT_FALSE(fixture->write_backs.is_recent(param(2), 0));  // not pending
  fixture->push_written(param(2), fixture->cpu);
  EXPECT_FALSE(fixture->write_backs.is_recent(param(0), 0));
  EXPECT_TRUE(fixture->write_backs.is_recent(param(1), 0));
  EXPECT_TRUE(fixture->write_backs.is_recent(param(2), 0));
  must(fixture->write_backs.wait_all());
}

TEST(WriteBackQueueTest, IfThereAreFewerSparesTwoThirdsOfThemAreRecent) {
  const auto fixture = homes_on_nvme(small_layout(3), 6, 3);
  for (const ChunkId c : {0u, 1u, 2u}) fixture->push_written(param(c), fixture->cpu);
  EXPECT_FALSE(fixture->write_backs.is_recent(param(0), 0));
  EXPECT_TRUE(fixture->write_backs.is_recent(param(1), 0));
  must(fixture->write_backs.wait_all());
}

TEST(WriteBackQueueTest, AWriteThatNoneFollowIsNotRecentForever) {
  const auto fixture = homes_on_nvme(small_layout(1), 3, 3);
  fixture->push_written(param(0), fixture->cpu, 1000);
  EXPECT_TRUE(fixture->write_backs.is_recent(param(0), 1000));
  EXPECT_TRUE(fixture->write_backs.is_recent(param(0), 900));
  EXPECT_FALSE(fixture->write_backs.is_recent(param(0), 1001));
  must(fixture->write_backs.wait_all());
}

TEST(WriteBackQueueTest, WritesAreSubmittedWhileTheCallerWaitsForARead) {
  const auto fixture = homes_on_nvme(small_layout(2), 2, 2);
  fixture->store(param(0));
  fixture->push_written(param(1), fixture->cpu);
  EXPECT_TRUE(fixture->slots.acquire(param(0), Tier::pinned));
  const IoTicket read =
      must(fixture->mover.read_async(param(0), fixture->slots.slot(param(0), Tier::pinned).view));
  must(fixture->write_backs.wait_for_ticket(read));
  EXPECT_EQ(fixture->mover.writes, 1);
  EXPECT_EQ(fixture->residency.state(param(1), Tier::pinned), Residency::writing_back);
  must(fixture->write_backs.wait_all());
}

}  // namespace
}  // namespace strata

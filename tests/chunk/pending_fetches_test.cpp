#include <gtest/gtest.h>

#include "chunk/parts_fixture.h"

namespace strata {
namespace {

using test::bare_placement;
using test::param;
using test::PartsFixture;
using test::small_layout;
using test::with_homes;

/// Parameters that are stored on nvme and nowhere else.
std::unique_ptr<PartsFixture> stored_parameters(int chunks) {
  const ChunkLayout layout = small_layout(chunks);
  auto fixture = std::make_unique<PartsFixture>(
      layout, with_homes(bare_placement(layout, 1, 2), Payload::param, Tier::nvme));
  for (ChunkId c = 0; c < static_cast<ChunkId>(chunks); ++c) fixture->store(param(c));
  return fixture;
}

TEST(PendingFetchesTest, AReadFillsThePinnedCopyUntilItIsCompleted) {
  const auto fixture = stored_parameters(1);
  EXPECT_TRUE(fixture->slots.acquire(param(0), Tier::pinned));
  must(fixture->fetches.begin_read(param(0)));
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::filling);
  EXPECT_EQ(fixture->mover.in_flight(), 1u);
  must(fixture->fetches.complete(param(0), Tier::pinned));
  EXPECT_EQ(fixture->residency.state(param(0), Tier::pinned), Residency::clean);
  EXPECT_EQ(fixture->mover.in_flight(), 0u);
}

TEST(PendingFetchesTest, AReadWaitsForTheEarlierWorkOnItsSlot) {
  const auto fixture = stored_parameters(1);
  const PayloadKey grad{0, Payload::grad};
  fixture->place_written(grad, Tier::pinned, fixture->cpu);
  const Event written =
      fixture->slots.slot(grad, Tier::pinned).written.events[static_cast<std::size_t>(StreamRole::cpu)];
  fixture->residency.set_state(grad, Tier::pinned, Residency::absent);
  fixture->slots.release(grad, Tier::pinned);
  for (const PayloadKey key : {PayloadKey{0, Payload::m}, param(0)})  // the second gets the memory of grad
    EXPECT_TRUE(fixture->slots.acquire(key, Tier::pinned));
  must(fixture->fetches.begin_read(param(0)));
  EXPECT_TRUE(fixture->backend->is_complete(written));
  must(fixture->fetches.complete(param(0), Tier::pinned));
}

TEST(PendingFetchesTest, AFailedReadLeavesTheCopyAbsentAndItsSlotFree) {
  const auto fixture = stored_parameters(1);
  EXPECT_TRUE(fixture->slots.acquire(param(0), Tier::pinned));
  must(fixture->fetches.begin_read(param(0)));
  fixture->mover.fail_reads = 1;
  EXPECT_EQ(fixture->fetches.complete(param(0), Tier::pinned).code(), Code::io_error);
  EXPECT_FALSE(fixture->residency.has_copy(param(0), Tier::pinned));
  EXPECT_FALSE(fixture->slots.holds_slot(param(0), Tier::pinned));
  must(fixture->fetches.complete(param(0), Tier::pinned));  // nothing is pending
}

// Work that was queued on the slot while the read was pending makes its contents unusable.
TEST(PendingFetchesTest, AReadIntoMemoryThatIsInUseLeavesTheCopyAbsentAndItsSlotFree) {
  const auto fixture = stored_parameters(1);
  EXPECT_TRUE(fixture->slots.acquire(param(0), Tier::pinned));
  must(fixture->fetches.begin_read(param(0)));
  HostCall stray(
      "stray write", +[](const int&, ThreadPool&) {}, 0);
  const BufferView view = fixture->slots.slot(param(0), Tier::pinned).view;
  stray.writes(view.data, view.bytes);
  must(fixture->backend->host_call_async(stray, fixture->cpu));
  const Status status = fixture->fetches.complete(param(0), Tier::pinned);
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_NE(status.message().find("fetching chunk 0 param"), std::string_view::npos) << status.message();
  EXPECT_FALSE(fixture->residency.has_copy(param(0), Tier::pinned));
  EXPECT_FALSE(fixture->slots.holds_slot(param(0), Tier::pinned));
  must(fixture->fetches.complete(param(0), Tier::pinned));  // nothing is pending
}

TEST(PendingFetchesTest, ACopyBecomesCleanWithoutWaitingForIt) {
  const auto fixture = stored_parameters(1);
  fixture->place_written(param(0), Tier::pinned, fixture->cpu);
  EXPECT_TRUE(fixture->slots.acquire(param(0), Tier::device));
  must(fixture->fetches.begin_copy(param(0), Tier::pinned, Tier::device));
  must(fixture->fetches.complete(param(0), Tier::device));
  EXPECT_EQ(fixture->residency.state(param(0), Tier::device), Residency::clean);
  const auto role = static_cast<std::size_t>(StreamRole::h2d);
  const Event done = fixture->slots.slot(param(0), Tier::device).written.events[role];
  EXPECT_EQ(done, fixture->slots.slot(param(0), Tier::pinned).read.events[role]);
  EXPECT_FALSE(fixture->backend->is_complete(done));
}

TEST(PendingFetchesTest, ACopyThatCannotBeginChangesNoStateAndNoFence) {
  const auto fixture = stored_parameters(1);
  fixture->place_written(param(0), Tier::pinned, fixture->cpu);
  EXPECT_TRUE(fixture->slots.acquire(param(0), Tier::device));
  fixture->mover.fail_copies = 1;
  EXPECT_EQ(fixture->fetches.begin_copy(param(0), Tier::pinned, Tier::device).code(), Code::internal);
  EXPECT_FALSE(fixture->residency.has_copy(param(0), Tier::device));
  EXPECT_EQ(fixture->slots.slot(param(0), Tier::pinned).read.events, Fence{}.events);
  EXPECT_EQ(fixture->slots.slot(param(0), Tier::device).written.events, Fence{}.events);
}

}  // namespace
}  // namespace strata

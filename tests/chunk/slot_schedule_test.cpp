#include <gtest/gtest.h>

#include "chunk/chunk_fixture.h"

// Which payload gets which slot under a known schedule: eviction, prefetch and write-behind.

namespace strata {
namespace {

using test::param;
using test::parameters_in_ram;
using test::parameters_on_nvme;

TEST(SlotScheduleTest, EvictionPicksTheLatestNextUse) {
  const auto fixture = parameters_in_ram(4, 3);
  const std::vector<Use> uses = {{0, param(0), Tier::device}, {1, param(1), Tier::device},
                                 {2, param(2), Tier::device}, {3, param(3), Tier::device},
                                 {4, param(1), Tier::device}, {5, param(0), Tier::device},
                                 {6, param(2), Tier::device}};
  fixture->uses.set_uses(uses, 7);
  for (const Use& use : uses) {
    fixture->uses.set_position(use.position);
    fixture->check(use.key, Tier::device, use.key.chunk);
    EXPECT_EQ(fixture->manager->residency().state(param(2), Tier::device) != Residency::absent,
              use.position == 2 || use.position == 6);
  }
  EXPECT_EQ(fixture->mover.copies, 5);  // the offline optimum: 0 1 2 3, and 2 again
}

TEST(SlotScheduleTest, AFetchForThisPositionIsNotEvictedBeforeItsUse) {
  const auto fixture = parameters_in_ram(3, 2);
  const std::vector<Use> uses = {{0, param(2), Tier::device},
                                 {1, param(0), Tier::device},
                                 {1, param(1), Tier::device},
                                 {2, param(2), Tier::device}};
  fixture->uses.set_uses(uses, 3);
  fixture->check(param(2), Tier::device, 2);
  EXPECT_TRUE(must(fixture->manager->prefetch(param(1), Tier::device)));
  fixture->uses.set_position(1);
  const ChunkPin first = must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
  EXPECT_NE(fixture->manager->residency().state(param(1), Tier::device), Residency::absent);
}

TEST(SlotScheduleTest, PrefetchTakesNoSlotFromSomethingNeededSooner) {
  const auto fixture = parameters_in_ram(3, 2);
  const std::vector<Use> uses = {{0, param(0), Tier::device},
                                 {1, param(1), Tier::device},
                                 {2, param(0), Tier::device},
                                 {3, param(2), Tier::device}};
  fixture->uses.set_uses(uses, 4);
  fixture->check(param(0), Tier::device, 0);
  EXPECT_TRUE(must(fixture->manager->prefetch(param(1), Tier::device)));
  EXPECT_FALSE(must(fixture->manager->prefetch(param(2), Tier::device)));
  for (const ChunkId c : {0u, 1u})
    EXPECT_NE(fixture->manager->residency().state(param(c), Tier::device), Residency::absent);
  fixture->uses.set_position(2);
  fixture->check(param(0), Tier::device, 0);
  EXPECT_TRUE(must(fixture->manager->prefetch(param(2), Tier::device)));  // 1 is not needed again this round
  EXPECT_EQ(fixture->manager->residency().state(param(1), Tier::device), Residency::absent);
}

TEST(SlotScheduleTest, OneSlotServesPinAfterPinAndPrefetchOnlyWhenItIsUnused) {
  const auto fixture = parameters_in_ram(3, 1);
  const std::vector<Use> uses = {
      {0, param(0), Tier::device}, {1, param(1), Tier::device}, {2, param(2), Tier::device}};
  fixture->uses.set_uses(uses, 3);
  {
    const ChunkPin held = must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
    EXPECT_FALSE(must(fixture->manager->prefetch(param(1), Tier::device)));
  }
  EXPECT_TRUE(must(fixture->manager->prefetch(param(1), Tier::device)));
  EXPECT_FALSE(must(fixture->manager->prefetch(param(2), Tier::device)));
  fixture->uses.set_position(1);
  fixture->check(param(1), Tier::device, 1);
  fixture->uses.set_position(2);
  fixture->check(param(2), Tier::device, 2);
  EXPECT_EQ(fixture->mover.copies, 3);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(SlotScheduleTest, WriteBackIsBoundedByTheSpares) {
  const auto fixture = parameters_on_nvme(4, 1, 4, 2);
  for (ChunkId c = 0; c < 4; ++c) {
    fixture->put(param(c), Tier::pinned, 100 + c, Intent::update);
    must(fixture->manager->write_back(param(c)));
    must(fixture->manager->write_backs().pump());
    EXPECT_LE(fixture->mover.in_flight(), 2u);
  }
  must(fixture->manager->write_backs().wait_all());
  EXPECT_EQ(fixture->mover.writes, 4);
}

// Chunk 0 stays on the device from its first use to its second; it is chunk 1 that will be read from RAM.
TEST(SlotScheduleTest, ASecondCopyOfWhatStaysOnTheDeviceIsEvictedFromRamFirst) {
  const auto fixture = parameters_on_nvme(3, 2, 2, 2);
  std::vector<Use> uses;
  for (const auto& [at, chunk] : {std::pair{0, 0u}, {1, 1u}, {2, 2u}, {3, 0u}, {4, 1u}})
    for (const Tier tier : kMemoryTiers) uses.push_back({at, param(chunk), tier});
  fixture->uses.set_uses(uses, 5);
  for (const Use& use : uses) {
    if (use.tier != Tier::device) continue;
    fixture->uses.set_position(use.position);
    fixture->check(use.key, Tier::device, use.key.chunk);
  }
  EXPECT_EQ(fixture->mover.reads, 3);
  EXPECT_EQ(fixture->differences, 0);
}

// The slot freed last may still have a copy queued on its memory, which a new user would wait for.
TEST(SlotScheduleTest, TheSlotFreeLongestIsAllocatedFirst) {
  const auto fixture = parameters_in_ram(4, 3);
  std::vector<const std::byte*> at;
  for (ChunkId c = 0; c < 3; ++c) {
    const ChunkPin pin = must(fixture->manager->pin(param(c), Tier::device, Intent::read, fixture->compute));
    at.push_back(pin.view().data);
  }
  for (const ChunkId c : {1u, 0u}) must(fixture->manager->evict(param(c), Tier::device));
  const ChunkPin next = must(fixture->manager->pin(param(3), Tier::device, Intent::read, fixture->compute));
  EXPECT_EQ(next.view().data, at[1]);
}

// Models a pipeline that reads, updates and writes chunk after chunk in a window of six slots.
TEST(SlotScheduleTest, APrefetchTakesTheSlotOfAnOldWriteBackNeverOfARecentOne) {
  constexpr int kChunks = 12;
  constexpr std::uint32_t kWindow = 6;
  const auto fixture = parameters_on_nvme(kChunks, 1, kWindow, 2 * kWindow);
  std::vector<Use> uses;
  for (ChunkId c = 0; c < kChunks; ++c)
    uses.push_back({static_cast<std::int32_t>(c), param(c), Tier::pinned});
  fixture->uses.set_uses(uses, kChunks);
  for (ChunkId c = 0; c + 1 < kChunks; ++c) {
    fixture->uses.set_position(static_cast<std::int32_t>(c));
    fixture->put(param(c), Tier::pinned, 100 + c, Intent::update);
    must(fixture->manager->write_back(param(c)));
    EXPECT_TRUE(must(fixture->manager->prefetch(param(c + 1), Tier::pinned))) << "chunk " << c + 1;
    for (ChunkId young = c < 3 ? 0 : c - 3; young <= c; ++young)
      EXPECT_NE(fixture->manager->residency().state(param(young), Tier::pinned), Residency::absent)
          << young << " at " << c;
  }
  must(fixture->manager->write_backs().wait_all());
  for (ChunkId c = 0; c + 1 < kChunks; ++c) fixture->check(param(c), Tier::pinned, 100 + c);
  EXPECT_EQ(fixture->differences, 0);
}

// Models decode steps after an update: they read two chunks in turn and write nothing.
TEST(SlotScheduleTest, AWriteBackThatNoneFollowGivesItsSlotToAPrefetchInTheEnd) {
  constexpr std::int32_t kPositions = 100;
  const auto fixture = parameters_on_nvme(4, 1, 3, 6);
  std::vector<Use> uses;
  for (std::int32_t at = 0; at < kPositions; ++at) uses.push_back({at, param(at % 2), Tier::pinned});
  fixture->uses.set_uses(uses, kPositions);
  for (const ChunkId c : {2u, 3u}) {
    fixture->put(param(c), Tier::pinned, 100 + c, Intent::update);
    must(fixture->manager->write_back(param(c)));
  }
  {
    const ChunkPin held = must(fixture->manager->pin(param(0), Tier::pinned, Intent::read, fixture->cpu));
    EXPECT_FALSE(must(fixture->manager->prefetch(param(1), Tier::pinned)));
  }
  for (std::int32_t at = 0; at <= kPositions; ++at) fixture->uses.set_position(at % kPositions);
  EXPECT_TRUE(must(fixture->manager->prefetch(param(1), Tier::pinned)));
  EXPECT_EQ(fixture->manager->residency().state(param(2), Tier::pinned), Residency::absent);
  EXPECT_NE(fixture->manager->residency().state(param(0), Tier::pinned), Residency::absent);
  for (const ChunkId c : {2u, 3u}) fixture->check(param(c), Tier::pinned, 100 + c);
}

TEST(SlotScheduleTest, FinalContentsAreSubmittedWhileTheCallerWaitsForARead) {
  const auto fixture = parameters_on_nvme(4, 1, 4, 4);
  const std::vector<Use> uses = {{0, param(0), Tier::pinned}, {1, param(1), Tier::pinned}};
  fixture->uses.set_uses(uses, 2);
  EXPECT_TRUE(must(fixture->manager->prefetch(param(1), Tier::pinned)));
  fixture->put(param(0), Tier::pinned, 100, Intent::update);
  must(fixture->manager->write_back(param(0)));
  const int writes = fixture->mover.writes;
  const ChunkPin read = must(fixture->manager->pin(param(1), Tier::pinned, Intent::read, fixture->cpu));
  EXPECT_EQ(fixture->mover.writes, writes + 1);
}

}  // namespace
}  // namespace strata

#include <gtest/gtest.h>

#include "chunk/chunk_rig.h"

// Which slots the known schedule gives to whom: eviction, prefetch, write-behind.

namespace strata {
namespace {

using test::param;
using test::parameters_in_ram;
using test::parameters_on_nvme;

TEST(SlotScheduleTest, EvictionTakesWhatIsNeededLatest) {
  const auto rig = parameters_in_ram(4, 3);
  const std::vector<Use> uses = {{0, param(0), Tier::device}, {1, param(1), Tier::device},
                                 {2, param(2), Tier::device}, {3, param(3), Tier::device},
                                 {4, param(1), Tier::device}, {5, param(0), Tier::device},
                                 {6, param(2), Tier::device}};
  rig->manager->set_schedule(uses, 7);
  for (const Use& use : uses) {
    rig->manager->set_position(use.position);
    rig->check(use.key, Tier::device, use.key.chunk);
    EXPECT_EQ(rig->manager->state(param(2), Tier::device) != Residency::absent,
              use.position == 2 || use.position == 6);
  }
  EXPECT_EQ(rig->manager->counters().fetches, 5u);  // the offline optimum: 0 1 2 3, and 2 again
}

TEST(SlotScheduleTest, WhatWasFetchedForThisPositionIsNotEvictedBeforeItsUse) {
  const auto rig = parameters_in_ram(3, 2);
  const std::vector<Use> uses = {{0, param(2), Tier::device},
                                 {1, param(0), Tier::device},
                                 {1, param(1), Tier::device},
                                 {2, param(2), Tier::device}};
  rig->manager->set_schedule(uses, 3);
  rig->check(param(2), Tier::device, 2);
  EXPECT_TRUE(must(rig->manager->prefetch(param(1), Tier::device)));
  rig->manager->set_position(1);
  const ChunkPin first = must(rig->manager->pin(param(0), Tier::device, Intent::read, rig->compute));
  EXPECT_NE(rig->manager->state(param(1), Tier::device), Residency::absent);
}

TEST(SlotScheduleTest, PrefetchTakesNoSlotFromSomethingNeededSooner) {
  const auto rig = parameters_in_ram(3, 2);
  const std::vector<Use> uses = {{0, param(0), Tier::device},
                                 {1, param(1), Tier::device},
                                 {2, param(0), Tier::device},
                                 {3, param(2), Tier::device}};
  rig->manager->set_schedule(uses, 4);
  rig->check(param(0), Tier::device, 0);
  EXPECT_TRUE(must(rig->manager->prefetch(param(1), Tier::device)));
  EXPECT_FALSE(must(rig->manager->prefetch(param(2), Tier::device)));
  EXPECT_EQ(rig->manager->counters().evictions, 0u);
  rig->manager->set_position(2);
  rig->check(param(0), Tier::device, 0);
  EXPECT_TRUE(must(rig->manager->prefetch(param(2), Tier::device)));  // 1 is not needed again this round
  EXPECT_EQ(rig->manager->state(param(1), Tier::device), Residency::absent);
}

TEST(SlotScheduleTest, OneSlotServesPinAfterPinAndPrefetchOnlyWhenItIsUnused) {
  const auto rig = parameters_in_ram(3, 1);
  const std::vector<Use> uses = {
      {0, param(0), Tier::device}, {1, param(1), Tier::device}, {2, param(2), Tier::device}};
  rig->manager->set_schedule(uses, 3);
  {
    const ChunkPin held = must(rig->manager->pin(param(0), Tier::device, Intent::read, rig->compute));
    EXPECT_FALSE(must(rig->manager->prefetch(param(1), Tier::device)));
  }
  EXPECT_TRUE(must(rig->manager->prefetch(param(1), Tier::device)));
  EXPECT_FALSE(must(rig->manager->prefetch(param(2), Tier::device)));
  rig->manager->set_position(1);
  rig->check(param(1), Tier::device, 1);
  rig->manager->set_position(2);
  rig->check(param(2), Tier::device, 2);
  EXPECT_EQ(rig->manager->counters().fetches, 3u);
  EXPECT_EQ(rig->differences, 0);
}

TEST(SlotScheduleTest, WriteBehindIsBoundedByTheSpares) {
  const auto rig = parameters_on_nvme(4, 1, 4, 2);
  for (ChunkId c = 0; c < 4; ++c) {
    rig->put(param(c), Tier::pinned, 100 + c, Intent::update);
    must(rig->manager->send_home(param(c)));
    must(rig->manager->pump());
    EXPECT_LE(rig->mover.in_flight(), 2u);
  }
  must(rig->manager->settle_all());
  EXPECT_EQ(rig->mover.writes, 4);
}

// The slot freed last may have a copy queued on its memory, and whoever takes it waits for that.
TEST(SlotScheduleTest, OfFreeSlotsTheOneFreeLongestIsGivenOut) {
  const auto rig = parameters_in_ram(4, 3);
  std::vector<const std::byte*> at;
  for (ChunkId c = 0; c < 3; ++c) {
    const ChunkPin pin = must(rig->manager->pin(param(c), Tier::device, Intent::read, rig->compute));
    at.push_back(pin.view().data);
  }
  for (const ChunkId c : {1u, 0u}) must(rig->manager->evict(param(c), Tier::device));
  const ChunkPin next = must(rig->manager->pin(param(3), Tier::device, Intent::read, rig->compute));
  EXPECT_EQ(next.view().data, at[1]);
}

// As in a pipeline that reads, updates and writes chunk after chunk in a window of six slots.
TEST(SlotScheduleTest, APrefetchTakesTheSlotOfAnOldWriteAndNoneOfAYoungOne) {
  constexpr int kChunks = 12;
  constexpr std::uint32_t kWindow = 6;
  const auto rig = parameters_on_nvme(kChunks, 1, kWindow, 2 * kWindow);
  std::vector<Use> uses;
  for (ChunkId c = 0; c < kChunks; ++c)
    uses.push_back({static_cast<std::int32_t>(c), param(c), Tier::pinned});
  rig->manager->set_schedule(uses, kChunks);
  for (ChunkId c = 0; c + 1 < kChunks; ++c) {
    rig->manager->set_position(static_cast<std::int32_t>(c));
    rig->put(param(c), Tier::pinned, 100 + c, Intent::update);
    must(rig->manager->send_home(param(c)));
    EXPECT_TRUE(must(rig->manager->prefetch(param(c + 1), Tier::pinned))) << "chunk " << c + 1;
    for (ChunkId young = c < 3 ? 0 : c - 3; young <= c; ++young)
      EXPECT_NE(rig->manager->state(param(young), Tier::pinned), Residency::absent) << young << " at " << c;
  }
  must(rig->manager->settle_all());
  for (ChunkId c = 0; c + 1 < kChunks; ++c) rig->check(param(c), Tier::pinned, 100 + c);
  EXPECT_EQ(rig->differences, 0);
}

TEST(SlotScheduleTest, WhileTheCallerWaitsForAReadWhatBecomesFinalIsWritten) {
  const auto rig = parameters_on_nvme(4, 1, 4, 4);
  const std::vector<Use> uses = {{0, param(0), Tier::pinned}, {1, param(1), Tier::pinned}};
  rig->manager->set_schedule(uses, 2);
  EXPECT_TRUE(must(rig->manager->prefetch(param(1), Tier::pinned)));
  rig->put(param(0), Tier::pinned, 100, Intent::update);
  must(rig->manager->send_home(param(0)));
  const int writes = rig->mover.writes;
  const ChunkPin read = must(rig->manager->pin(param(1), Tier::pinned, Intent::read, rig->cpu));
  EXPECT_EQ(rig->mover.writes, writes + 1);
}

}  // namespace
}  // namespace strata

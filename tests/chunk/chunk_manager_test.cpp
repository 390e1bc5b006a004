#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chunk/chunk_fixture.h"

namespace strata {
namespace {

using test::bare_placement;
using test::ChunkFixture;
using test::param;
using test::parameters_in_ram;
using test::parameters_on_nvme;
using test::small_layout;
using test::with_homes;
using testing::HasSubstr;

constexpr std::size_t kSlot = 4096 * 4;

TEST(ChunkManagerTest, PinsAreMoveOnly) {
  static_assert(std::is_nothrow_move_constructible_v<ChunkPin> &&
                std::is_nothrow_move_assignable_v<ChunkPin>);
  static_assert(!std::is_copy_constructible_v<ChunkPin> && !std::is_copy_assignable_v<ChunkPin>);
  const auto fixture = parameters_in_ram(2, 2);
  ChunkPin first = must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
  ChunkPin moved = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(moved);
  moved = must(fixture->manager->pin(param(1), Tier::device, Intent::read, fixture->compute));
  must(fixture->manager->evict(param(0), Tier::device));  // aborts if the overwritten pin still held it
  EXPECT_EQ(moved.key(), param(1));
}

TEST(ChunkManagerTest, PinnedChunksAreNotEvicted) {
  const auto fixture = parameters_in_ram(6, 2);
  const ChunkPin held = must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
  for (ChunkId c = 1; c < 6; ++c) {
    fixture->check(param(c), Tier::device, c);
    must(fixture->audit());
  }
  EXPECT_EQ(fixture->manager->residency().state(param(0), Tier::device), Residency::clean);
  fixture->expect(held, fixture->compute, 0);
  must(fixture->backend->synchronize(fixture->compute));
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, APinThatFindsEverySlotPinnedIsRefusedWithTheNumbers) {
  const auto fixture = parameters_in_ram(2, 1);
  const ChunkPin held = must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
  const Status status =
      fixture->manager->pin(param(1), Tier::device, Intent::read, fixture->compute).status();
  EXPECT_EQ(status.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("chunk 1 param needs a slot of 16384 bytes in device, but all 1 slots are pinned"));
  must(fixture->audit());
}

TEST(ChunkManagerTest, CleanCopiesAreDroppedNotWritten) {
  const auto fixture = parameters_on_nvme(4, 1, 1);
  for (ChunkId c = 0; c < 4; ++c) fixture->check(param(c), Tier::device, c);
  EXPECT_EQ(fixture->mover.writes, 0);
  EXPECT_EQ(fixture->backend->counters().copied_bytes[static_cast<std::size_t>(StreamRole::d2h)], 0u);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, DirtyCopiesReachTheirHomeFromEveryTierToEveryTier) {
  const ChunkLayout layout = small_layout(1);
  for (const Tier written : {Tier::device, Tier::pinned})
    for (const Tier home : {Tier::device, Tier::pinned, Tier::nvme}) {
      ChunkFixture fixture(layout, with_homes(bare_placement(layout, 1, 1), Payload::param, home));
      fixture.put(param(0), written, 7);
      must(fixture.manager->write_back(param(0)));
      must(fixture.manager->write_backs().wait_all());
      must(fixture.audit());
      EXPECT_EQ(fixture.manager->residency().state(param(0), home),
                home == written ? Residency::dirty : Residency::clean)
          << to_string(written) << to_string(home);
      for (const Tier tier : {Tier::device, Tier::pinned})
        if (tier != home && fixture.manager->residency().state(param(0), tier) != Residency::absent)
          must(fixture.manager->evict(param(0), tier));
      fixture.check(param(0), Tier::pinned, 7);
      EXPECT_EQ(fixture.differences, 0);
    }
}

TEST(ChunkManagerTest, AFailedReadLeavesNoCopyOrSlotAndNamesChunkAndPayload) {
  for (const Tier tier : {Tier::device, Tier::pinned}) {
    const auto fixture = parameters_on_nvme(3, 1, 1);
    fixture->mover.fail_reads = 1;
    const Status status =
        fixture->manager->pin(param(2), tier, Intent::read, fixture->stream_of(tier)).status();
    EXPECT_EQ(status.code(), Code::io_error);
    EXPECT_THAT(std::string(status.message()), HasSubstr("chunk 2 param"));
    must(fixture->audit());
    EXPECT_EQ(fixture->held_bytes(Tier::device) + fixture->held_bytes(Tier::pinned), 0u) << to_string(tier);
    fixture->check(param(2), tier, 2);  // the source is unchanged
    EXPECT_EQ(fixture->differences, 0);
  }
}

TEST(ChunkManagerTest, AFailedCopyReleasesItsSlot) {
  const auto fixture = parameters_in_ram(1, 1);
  fixture->mover.fail_copies = 1;
  EXPECT_EQ(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute).status().code(),
            Code::internal);
  must(fixture->audit());
  EXPECT_EQ(fixture->manager->slots().used(Tier::device, 0), 0u);
  fixture->check(param(0), Tier::device, 0);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, PeakUsedSlotsCountsHomesAndWindowSlots) {
  const auto fixture = parameters_in_ram(4, 4);
  EXPECT_EQ(fixture->manager->slots().peak_used(Tier::pinned, 0), 4u) << "homes";
  for (const ChunkId chunk : {0u, 1u, 2u, 3u}) {
    fixture->check(param(chunk), Tier::device, 0);
    if (chunk > 0) must(fixture->manager->evict(param(chunk), Tier::device));
  }
  EXPECT_EQ(fixture->manager->slots().used(Tier::device, 0), 1u);
  EXPECT_EQ(fixture->manager->slots().peak_used(Tier::device, 0), 2u);
}

TEST(ChunkManagerTest, AFailedWriteLeavesTheSourceDirtyAndNamesChunkAndPayload) {
  const auto fixture = parameters_on_nvme(2, 1, 1);
  fixture->put(param(1), Tier::pinned, 50, Intent::update);
  must(fixture->manager->write_back(param(1)));
  EXPECT_EQ(fixture->manager->residency().state(param(1), Tier::pinned), Residency::writing_back);
  fixture->mover.fail_writes = 1;
  const Status status = fixture->manager->write_backs().wait_all();
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_THAT(std::string(status.message()), HasSubstr("writing back chunk 1 param"));
  EXPECT_EQ(fixture->manager->residency().state(param(1), Tier::pinned), Residency::dirty);
  EXPECT_EQ(fixture->manager->residency().state(param(1), Tier::nvme), Residency::absent);
  must(fixture->audit());
  must(fixture->manager->evict(param(1), Tier::pinned));  // the second attempt succeeds
  fixture->check(param(1), Tier::device, 50);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, AWriteThatMustWaitForAFailingOneKeepsItsOwnNewestCopy) {
  const auto fixture = parameters_on_nvme(2, 2, 2);
  fixture->put(param(0), Tier::pinned, 10, Intent::update);
  must(fixture->manager->write_back(param(0)));
  fixture->put(param(1), Tier::device, 11, Intent::update);
  fixture->mover.fail_writes = 1;  // fails chunk 0's write, for whose spare extent chunk 1 waits
  EXPECT_EQ(fixture->manager->write_back(param(1)).code(), Code::io_error);
  must(fixture->audit());
  must(fixture->manager->evict(param(1), Tier::device));
  must(fixture->manager->evict(param(1), Tier::pinned));
  fixture->check(param(1), Tier::device, 11);
  fixture->check(param(0), Tier::device, 10);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, AWriterWhoseOldContentsFailToWriteBackGetsNoPinAndChangesNothing) {
  const auto fixture = parameters_on_nvme(1, 1, 1);
  fixture->put(param(0), Tier::pinned, 5, Intent::update);
  must(fixture->manager->write_back(param(0)));
  fixture->mover.fail_writes = 1;
  for (const Intent intent : {Intent::update, Intent::overwrite}) {
    const Status status = fixture->manager->pin(param(0), Tier::device, intent, fixture->compute).status();
    EXPECT_EQ(status.is_ok(), intent == Intent::overwrite);  // the fault occurs once
    must(fixture->audit());
    if (intent == Intent::update) fixture->check(param(0), Tier::pinned, 5);
  }
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, AbortPendingDiscardsFailuresNobodyWaitedFor) {
  const auto fixture = parameters_on_nvme(2, 1, 2);
  EXPECT_TRUE(must(fixture->manager->prefetch(param(0), Tier::pinned)));
  fixture->put(param(1), Tier::pinned, 8, Intent::update);
  must(fixture->manager->write_back(param(1)));
  fixture->mover.fail_reads = fixture->mover.fail_writes = 1;
  fixture->manager->abort_pending();
  must(fixture->audit());
  EXPECT_EQ(fixture->mover.in_flight(), 0u);
  fixture->check(param(0), Tier::device, 0);
  fixture->check(param(1), Tier::device, 8);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, GenerationsCountOnlyWrites) {
  const auto fixture = parameters_in_ram(1, 1);
  EXPECT_EQ(fixture->manager->residency().generation(param(0)), 1u);
  fixture->check(param(0), Tier::device, 0);
  EXPECT_EQ(fixture->manager->residency().generation(param(0)), 1u);
  fixture->put(param(0), Tier::device, 1, Intent::update);
  EXPECT_EQ(fixture->manager->residency().generation(param(0)), 2u);
  EXPECT_EQ(fixture->manager->residency().state(param(0), Tier::pinned), Residency::absent);  // stale
}

TEST(ChunkManagerTest, DroppedPayloadsFreeTheirSlotsUnwritten) {
  const auto fixture = parameters_on_nvme(2, 1, 2);
  const PayloadKey grad{0, Payload::grad};
  fixture->put(grad, Tier::device, 9);
  fixture->check(grad, Tier::pinned, 9);
  must(fixture->manager->drop(grad));
  must(fixture->audit());
  EXPECT_EQ(fixture->held_bytes(Tier::device) + fixture->held_bytes(Tier::pinned), 0u);
  EXPECT_EQ(fixture->mover.writes, 0);
  EXPECT_EQ(fixture->manager->pin(grad, Tier::device, Intent::read, fixture->compute).status().code(),
            Code::internal);
}

TEST(ChunkManagerTest, TheLastCopyWithoutAHomeIsNeverEvicted) {
  const auto fixture = parameters_in_ram(2, 1);
  fixture->put({0, Payload::grad}, Tier::device, 3);
  EXPECT_EQ(fixture->manager->pin(param(1), Tier::device, Intent::read, fixture->compute).status().code(),
            Code::does_not_fit);
  EXPECT_FALSE(must(fixture->manager->prefetch(param(1), Tier::device)));
  fixture->check({0, Payload::grad}, Tier::device, 3);
  EXPECT_EQ(fixture->differences, 0);
}

TEST(ChunkManagerTest, PlacementsThatCannotWorkAreRefused) {
  const ChunkLayout layout = small_layout(2);
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({.schedule = StreamSchedule::latest_legal}, *pool, clock));
  Stream h2d, d2h;
  test::FakeMover mover(*backend, h2d, d2h);
  Budget budget("any");
  UseSchedule uses(layout.n_chunks());
  const auto refusal = [&](const Placement& placement, const SlotPool::Slabs& slabs) {
    return ChunkManager::create(layout, placement, uses, slabs, *backend, mover, {&budget, &budget, &budget})
        .status();
  };
  EXPECT_THAT(
      std::string(
          refusal(with_homes(bare_placement(layout, 0, 0, 0), Payload::param, Tier::nvme), {}).message()),
      HasSubstr("no spare slot"));
  Placement short_one = bare_placement(layout, 0, 0);
  short_one.homes.pop_back();
  EXPECT_THAT(std::string(refusal(short_one, {}).message()),
              HasSubstr("homes for 1 chunks, but the layout has 2"));
  EXPECT_THAT(std::string(refusal(bare_placement(layout, 1, 0), {}).message()),
              HasSubstr("device slab has 0 bytes, but the placement needs 16384"));
}

TEST(ChunkManagerTest, HomesBeyondTheBudgetAreRefused) {
  const ChunkLayout layout = small_layout(2);
  const Placement placement = with_homes(bare_placement(layout, 0, 0), Payload::param, Tier::pinned);
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({.schedule = StreamSchedule::latest_legal}, *pool, clock));
  const Buffer pinned = must(backend->allocate(MemoryKind::pinned, 2 * kSlot));
  Stream h2d, d2h;
  test::FakeMover mover(*backend, h2d, d2h);
  UseSchedule uses(layout.n_chunks());
  Budget device("device"), ram("pinned", 2 * kSlot - 1), nvme("nvme");
  EXPECT_EQ(ChunkManager::create(layout, placement, uses, {{}, pinned.view()}, *backend, mover,
                                 {&device, &ram, &nvme})
                .status()
                .code(),
            Code::does_not_fit);
  EXPECT_EQ(ram.reserved_bytes(), 0u);
}

using ChunkManagerDeathTest = testing::Test;

TEST(ChunkManagerDeathTest, ContractViolationsAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto fixture = parameters_in_ram(2, 2);
  EXPECT_DEATH(
      {
        const ChunkPin held =
            must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
        fixture->manager.reset();
      },
      "destroyed while a pin is alive");
  EXPECT_DEATH(
      {
        const ChunkPin held =
            must(fixture->manager->pin(param(0), Tier::device, Intent::update, fixture->compute));
        (void)fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute);
      },
      "pinned in device for writing");
  EXPECT_DEATH(
      {
        const ChunkPin held =
            must(fixture->manager->pin(param(0), Tier::device, Intent::update, fixture->compute));
        (void)fixture->manager->write_back(param(0));
      },
      "while it is being written there");
  EXPECT_DEATH(
      {
        const ChunkPin held =
            must(fixture->manager->pin(param(0), Tier::device, Intent::read, fixture->compute));
        (void)fixture->manager->evict(param(0), Tier::device);
      },
      "cannot be released");
}

}  // namespace
}  // namespace strata

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chunk/chunk_fixture.h"

namespace strata {
namespace {

using test::bare_placement;
using test::param;
using test::small_layout;
using test::with_homes;
using testing::HasSubstr;

/// A pool over plain memory, with `pinned` window slots in pinned memory and one on the device.
struct PoolFixture {
  PoolFixture(int chunks, std::uint32_t pinned_slots, std::optional<Tier> home = std::nullopt)
      : layout(small_layout(chunks)), placement(bare_placement(layout, 1, pinned_slots)) {
    if (home) placement = with_homes(std::move(placement), Payload::param, *home);
    memory.resize(placement.bytes(layout, Tier::device) + placement.bytes(layout, Tier::pinned));
    pool.emplace(must(SlotPool::create(layout, placement, slabs(), {&device, &pinned, &nvme})));
  }
  SlotPool::Slabs slabs() {
    const std::size_t on_device = placement.bytes(layout, Tier::device);
    return {{memory.data(), on_device}, {memory.data() + on_device, memory.size() - on_device}};
  }

  const ChunkLayout layout;
  Placement placement;
  std::vector<std::byte> memory;
  Budget device{"device"}, pinned{"pinned"}, nvme{"nvme"};
  std::optional<SlotPool> pool;
};

TEST(SlotPoolTest, SlotsAreDisjointPartsOfTheSlab) {
  PoolFixture fixture(3, 3);
  std::size_t offset = 0;
  for (const PayloadSlot& slot : fixture.pool->slots(Tier::pinned, 0)) {
    EXPECT_EQ(slot.view.data, fixture.slabs().pinned.data + offset);
    offset += slot.view.bytes;
  }
  EXPECT_EQ(offset, fixture.slabs().pinned.bytes);
}

TEST(SlotPoolTest, APayloadInTheWindowOfALargerClassHasTheFirstPartOfASlot) {
  const LayoutTensor tensors[] = {{"small", 4096, {}}, {"large", 8192, {}}};
  const ChunkLayout layout = must(ChunkLayout::create(tensors, {.chunk_elems = 4096}));
  Placement placement;
  placement.classes = slot_classes(layout);
  placement.homes.resize(layout.n_chunks());
  placement.device_windows = {1, 1};
  placement.classes[1].window[index_of(Tier::device)] = 1;
  ASSERT_TRUE(placement.check(layout).is_ok());
  std::vector<std::byte> memory(placement.bytes(layout, Tier::device));
  Budget device{"device"}, pinned{"pinned"}, nvme{"nvme"};
  SlotPool pool = must(
      SlotPool::create(layout, placement, {{memory.data(), memory.size()}, {}}, {&device, &pinned, &nvme}));
  for (const ChunkId chunk : {0u, 1u, 0u}) {
    ASSERT_TRUE(pool.acquire(param(chunk), Tier::device));
    const BufferView view = pool.slot(param(chunk), Tier::device).view;
    EXPECT_EQ(view.data, memory.data());
    EXPECT_EQ(view.bytes, layout.payload_bytes(chunk, Payload::param));
    EXPECT_FALSE(pool.acquire(param(1 - chunk), Tier::device)) << "the only slot is taken";
    pool.release(param(chunk), Tier::device);
  }
}

TEST(SlotPoolTest, APlacementWithoutRoomForAPayloadInItsWindowIsRefused) {
  const LayoutTensor tensors[] = {{"small", 4096, {}}, {"large", 8192, {}}};
  const ChunkLayout layout = must(ChunkLayout::create(tensors, {.chunk_elems = 4096}));
  Placement placement;
  placement.classes = slot_classes(layout);
  placement.homes.resize(layout.n_chunks());
  const auto refused = [&](std::vector<std::uint32_t> windows) {
    placement.device_windows = std::move(windows);
    return std::string(placement.check(layout).message());
  };
  EXPECT_EQ(refused({1, 1}), "ok");
  EXPECT_THAT(refused({0}), HasSubstr("1 classes, but there are 2"));
  EXPECT_THAT(refused({0, 0}), HasSubstr("cannot pass through the window of class 0 of 2")) << "too small";
  EXPECT_THAT(refused({2, 1}), HasSubstr("cannot pass through the window of class 2 of 2"));
  placement.homes[0][static_cast<std::size_t>(Payload::param)] = Tier::device;
  EXPECT_THAT(refused({1, 1}), HasSubstr("of which 1 have their home on the device"));
}

TEST(SlotPoolTest, TheSlotThatHasBeenFreeLongestIsHandedOut) {
  PoolFixture fixture(4, 3);
  for (const ChunkId c : {0u, 1u, 2u}) EXPECT_TRUE(fixture.pool->acquire(param(c), Tier::pinned));
  const std::byte* const of_second = fixture.pool->slot(param(1), Tier::pinned).view.data;
  fixture.pool->release(param(1), Tier::pinned);
  fixture.pool->release(param(0), Tier::pinned);
  EXPECT_TRUE(fixture.pool->acquire(param(3), Tier::pinned));
  EXPECT_EQ(fixture.pool->slot(param(3), Tier::pinned).view.data, of_second);
}

TEST(SlotPoolTest, AKeyGetsOneSlotAndNoneIfAllAreHeld) {
  PoolFixture fixture(2, 1);
  EXPECT_TRUE(fixture.pool->acquire(param(0), Tier::pinned));
  EXPECT_TRUE(fixture.pool->acquire(param(0), Tier::pinned));
  EXPECT_EQ(fixture.pool->used(Tier::pinned, 0), 1u);
  EXPECT_FALSE(fixture.pool->acquire(param(1), Tier::pinned));
  EXPECT_FALSE(fixture.pool->holds_slot(param(1), Tier::pinned));
  EXPECT_TRUE(fixture.pool->acquire(param(1), Tier::device));  // another tier
}

TEST(SlotPoolTest, HomesAreHeldFromTheStartAndNeverReleased) {
  PoolFixture fixture(2, 1, Tier::pinned);
  for (const ChunkId c : {0u, 1u}) {
    EXPECT_TRUE(fixture.pool->slot(param(c), Tier::pinned).is_home);
    fixture.pool->release(param(c), Tier::pinned);
    EXPECT_EQ(fixture.pool->slot(param(c), Tier::pinned).owner, param(c));
  }
  EXPECT_EQ(fixture.pool->used(Tier::pinned, 0), 2u);
  EXPECT_EQ(fixture.pool->used(Tier::device, 0), 0u);
}

TEST(SlotPoolTest, ThePeakIsTheMostSlotsHeldAtOnceHomesIncluded) {
  PoolFixture fixture(2, 3, Tier::pinned);
  EXPECT_EQ(fixture.pool->peak_used(Tier::pinned, 0), 2u);
  const PayloadKey grads[] = {{0, Payload::grad}, {1, Payload::grad}};
  for (const PayloadKey grad : grads) {
    EXPECT_TRUE(fixture.pool->acquire(grad, Tier::pinned));
    fixture.pool->release(grad, Tier::pinned);
  }
  EXPECT_EQ(fixture.pool->peak_used(Tier::pinned, 0), 3u);
  EXPECT_EQ(fixture.pool->used(Tier::pinned, 0), 2u);
}

// They protect the memory: its next owner has to wait for them too.
TEST(SlotPoolTest, FencesStayWithTheSlotWhenItsOwnerChanges) {
  PoolFixture fixture(2, 1);
  EXPECT_TRUE(fixture.pool->acquire(param(0), Tier::pinned));
  fixture.pool->slot(param(0), Tier::pinned).add_reader(StreamRole::h2d, {1, 7});
  fixture.pool->release(param(0), Tier::pinned);
  EXPECT_TRUE(fixture.pool->acquire(param(1), Tier::pinned));
  EXPECT_EQ(fixture.pool->slot(param(1), Tier::pinned).read.events[static_cast<std::size_t>(StreamRole::h2d)],
            (Event{1, 7}));
}

TEST(SlotPoolTest, AWriterReplacesTheFencesThatItHasWaitedFor) {
  PayloadSlot slot;
  slot.set_writer(StreamRole::compute, {0, 3});
  slot.add_reader(StreamRole::d2h, {2, 5});
  slot.set_writer(StreamRole::cpu, {3, 9});
  Fence expected;
  expected.add(StreamRole::cpu, {3, 9});
  EXPECT_EQ(slot.written.events, expected.events);
  EXPECT_EQ(slot.read.events, Fence{}.events);
}

TEST(SlotPoolTest, ExchangedSlotsCarryTheirMemoryToTheOtherKeyWhichKeepsItsHome) {
  PoolFixture fixture(2, 1, Tier::pinned);
  const PayloadKey grad{0, Payload::grad};
  EXPECT_TRUE(fixture.pool->acquire(grad, Tier::pinned));
  const std::byte* const of_grad = fixture.pool->slot(grad, Tier::pinned).view.data;
  const std::byte* const of_param = fixture.pool->slot(param(1), Tier::pinned).view.data;
  fixture.pool->exchange(grad, param(1), Tier::pinned);
  EXPECT_EQ(fixture.pool->slot(param(1), Tier::pinned).view.data, of_grad);
  EXPECT_EQ(fixture.pool->slot(grad, Tier::pinned).view.data, of_param);
  fixture.pool->release(grad, Tier::pinned);
  fixture.pool->release(param(1), Tier::pinned);
  EXPECT_FALSE(fixture.pool->holds_slot(grad, Tier::pinned));
  EXPECT_EQ(fixture.pool->slot(param(1), Tier::pinned).owner, param(1));
}

TEST(SlotPoolTest, AllSlotsAreChargedAsLongAsThePoolLives) {
  PoolFixture fixture(2, 3, Tier::nvme);
  const std::array<const Budget*, kTiers> budgets = {&fixture.device, &fixture.pinned, &fixture.nvme};
  for (const Tier tier : kAllTiers)
    EXPECT_EQ(budgets[index_of(tier)]->reserved_bytes(), fixture.placement.bytes(fixture.layout, tier))
        << to_string(tier);
  fixture.pool.reset();
  for (const Budget* budget : budgets) EXPECT_EQ(budget->reserved_bytes(), 0u) << budget->name();
}

TEST(SlotPoolTest, ASlabOfTheWrongSizeIsRefusedAndChargesNothing) {
  PoolFixture fixture(2, 3);
  SlotPool::Slabs slabs = fixture.slabs();
  --slabs.pinned.bytes;
  Budget device("device"), pinned("pinned"), nvme("nvme");
  const Status status =
      SlotPool::create(fixture.layout, fixture.placement, slabs, {&device, &pinned, &nvme}).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("pinned slab has 49151 bytes, but the placement needs 49152"));
  EXPECT_EQ(device.reserved_bytes(), 0u);
}

}  // namespace
}  // namespace strata

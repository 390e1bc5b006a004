#include "store/id_table.h"

#include <gtest/gtest.h>

#include <map>

#include <strata/runtime/rng.h>

namespace strata::detail {
namespace {

TEST(IdTableTest, BehavesAsAMapUnderRandomOperations) {
  constexpr std::uint64_t kSeed = 4;
  const Rng rng(kSeed, 0);
  IdTable table(24);
  std::map<std::uint64_t, std::uint64_t> model;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const std::uint64_t id = rng.below(2 * i, 40) * 0x10000;
    if (rng.below(2 * i + 1, 2) == 0 && model.size() < 24) {
      table.find_or_add(id).live.generation = i;
      model[id] = i;
    } else {
      table.erase(id);
      model.erase(id);
    }
    const std::uint64_t other = rng.below(3 * i, 40) * 0x10000;
    const IdRecord* found = table.find(other);
    ASSERT_EQ(found != nullptr, model.contains(other)) << "seed " << kSeed << " step " << i;
    if (found != nullptr) {
      ASSERT_EQ(found->live.generation, model[other]) << "seed " << kSeed << " step " << i;
    }
  }
}

constexpr std::array<std::uint64_t, 1> kOneFile{1};  // the weight of the file

TEST(SlotAllocatorTest, RetiredSlotComesFreeWithItsLastReader) {
  const SlotClass one{4096, 1};
  SlotAllocator allocator({&one, 1}, kOneFile);
  const SlotIndex slot = *allocator.allocate(0);
  allocator.publish(slot);
  allocator.add_reader(slot);
  allocator.retire(slot);
  EXPECT_FALSE(allocator.allocate(0).has_value());
  allocator.drop_reader(slot);
  EXPECT_EQ(allocator.allocate(0), slot);
}

TEST(SlotAllocatorTest, ABadSlotComesBackOnlyWhenItIsAskedFor) {
  const SlotClass two{4096, 2};
  SlotAllocator allocator({&two, 1}, kOneFile);
  allocator.mark_bad(*allocator.allocate(0));
  allocator.release(*allocator.allocate(0));
  EXPECT_TRUE(allocator.allocate(0).has_value());
  EXPECT_FALSE(allocator.allocate(0).has_value());
  EXPECT_EQ(allocator.bad(0), 1u);
  const SlotIndex bad = *allocator.allocate_bad(0);
  EXPECT_EQ(allocator.bad(0), 0u);
  EXPECT_EQ(allocator.n_in_flight(0), 2u);
  EXPECT_FALSE(allocator.allocate_bad(0).has_value());
  allocator.release(bad);
  EXPECT_EQ(allocator.allocate(0), bad);
}

}  // namespace
}  // namespace strata::detail

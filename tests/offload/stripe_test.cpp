#include "store/stripe.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include <strata/runtime/rng.h>

#include "store/slot_allocator.h"

namespace strata::test {
namespace {

using detail::apportion_units;
using detail::Extent;
using detail::SlotAllocator;
using detail::stripe_weights;

using Counts = std::vector<std::uint64_t>;

Counts apportion(std::uint64_t units, const Counts& weights) {
  Counts counts(weights.size());
  apportion_units(units, weights, counts);
  return counts;
}

// The minimum time of the slowest path, computed greedily: each unit goes to the path that would finish it
// first.
double min_time(std::uint64_t units, const Counts& weights) {
  std::vector<double> taken(weights.size());
  double slowest = 0;
  for (; units > 0; --units) {
    std::size_t first = 0;
    for (std::size_t i = 1; i < weights.size(); ++i)
      if ((taken[i] + 1) / static_cast<double>(weights[i]) <
          (taken[first] + 1) / static_cast<double>(weights[first]))
        first = i;
    ++taken[first];
    slowest = std::max(slowest, taken[first] / static_cast<double>(weights[first]));
  }
  return slowest;
}

TEST(StripeTest, SharesAreProportionalToTheRates) {
  const std::vector<double> rates{3e9, 1e9};
  EXPECT_EQ(apportion(128, stripe_weights(rates)), (Counts{96, 32}));
  EXPECT_EQ(apportion(0, stripe_weights(rates)), (Counts{0, 0}));
}

TEST(StripeTest, PathTooSlowForAUnitGetsNoneOfFew) {
  const std::vector<double> rates{1, 1000};
  EXPECT_EQ(apportion(128, stripe_weights(rates)), (Counts{0, 128}));
}

TEST(StripeTest, NoApportionmentFinishesEarlierAndNoCountFallsWithMoreUnits) {
  const Rng rng(5, 0);
  for (std::uint64_t round = 0; round < 50; ++round) {
    Counts weights(1 + rng.below(100 * round, 5));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + rng.below(100 * round + 1 + i, 40);
    Counts before(weights.size());
    for (std::uint64_t units = 0; units < 70; ++units) {
      const Counts counts = apportion(units, weights);
      ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), units) << round;
      double slowest = 0;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        ASSERT_GE(counts[i], before[i]) << "round " << round << ", " << units << " units";
        slowest = std::max(slowest, static_cast<double>(counts[i]) / static_cast<double>(weights[i]));
      }
      ASSERT_DOUBLE_EQ(slowest, min_time(units, weights)) << "round " << round << ", " << units << " units";
      before = counts;
    }
  }
}

std::vector<std::uint64_t> bytes_by_file(const std::vector<Extent>& extents, std::size_t files) {
  std::vector<std::uint64_t> bytes(files);
  for (const Extent& extent : extents) bytes[extent.file] += extent.bytes;
  return bytes;
}

TEST(StripeTest, LargeSlotIsStripedByTheWeights) {
  const std::vector<SlotClass> classes{{16 * kMiB, 3}};
  const SlotAllocator allocator(classes, Counts{3, 1});
  std::vector<Extent> extents;
  allocator.map_extents(2, 16 * kMiB, extents);
  EXPECT_EQ(bytes_by_file(extents, 2), (Counts{12 * kMiB, 4 * kMiB}));
  EXPECT_EQ(extents[0].offset, 2 * 12 * kMiB);
  EXPECT_EQ(allocator.file_bytes(1), 3 * 4 * kMiB);
}

TEST(StripeTest, SmallSlotsAreStoredWholeInOneFile) {
  const std::vector<SlotClass> classes{{8 * kKiB, 8}};
  const SlotAllocator allocator(classes, Counts{3, 1});
  std::vector<Extent> extents;
  for (std::uint32_t slot = 0; slot < 8; ++slot) {
    allocator.map_extents(slot, 8 * kKiB, extents);
    EXPECT_EQ(extents.size(), 1u) << slot;
  }
  EXPECT_EQ(allocator.file_bytes(0), 6 * 8 * kKiB);
  EXPECT_EQ(allocator.file_bytes(1), 2 * 8 * kKiB);
}

TEST(StripeTest, ShortObjectKeepsTheSlotsProportions) {
  const std::vector<SlotClass> classes{{16 * kMiB, 1}};
  const SlotAllocator allocator(classes, Counts{3, 1});
  std::vector<Extent> extents;
  allocator.map_extents(0, 8 * kMiB, extents);
  EXPECT_EQ(bytes_by_file(extents, 2), (Counts{6 * kMiB, 2 * kMiB}));
}

// Every object size in every slot, with slot sizes that do not divide evenly: extents cover the object, are
// aligned, stay inside their slot and do not overlap others.
TEST(StripeTest, ExtentsHoldTheObjectInsideTheirSlotAndOverlapNoOther) {
  const std::vector<SlotClass> classes{{132 * kKiB, 7}, {1028 * kKiB, 5}, {4 * kKiB, 3}};
  const Counts weights{7, 65536, 20000};
  const SlotAllocator allocator(classes, weights);
  std::vector<Extent> whole, part;
  Counts end(weights.size());  // the end of the previous slot, in each file
  for (std::uint32_t slot = 0; slot < allocator.size(); ++slot) {
    const std::size_t slot_bytes = allocator.slot_bytes(allocator[slot].slot_class);
    allocator.map_extents(slot, slot_bytes, whole);
    const Counts room = bytes_by_file(whole, weights.size());
    ASSERT_EQ(std::accumulate(room.begin(), room.end(), std::uint64_t{0}), slot_bytes) << slot;
    for (std::size_t bytes = 4 * kKiB; bytes <= slot_bytes; bytes += 4 * kKiB) {
      allocator.map_extents(slot, bytes, part);
      const Counts held = bytes_by_file(part, weights.size());
      ASSERT_EQ(std::accumulate(held.begin(), held.end(), std::uint64_t{0}), bytes) << slot;
      for (const Extent& extent : part) {
        ASSERT_EQ(extent.offset, end[extent.file]) << slot;
        ASSERT_GT(extent.bytes, 0u);
        ASSERT_EQ(extent.bytes % 4096, 0u);
        ASSERT_LE(extent.bytes, room[extent.file]) << slot << " of " << bytes;
      }
    }
    for (std::size_t file = 0; file < weights.size(); ++file) end[file] += room[file];
  }
  for (std::uint32_t file = 0; file < weights.size(); ++file)
    EXPECT_EQ(allocator.file_bytes(file), end[file]);
}

}  // namespace
}  // namespace strata::test

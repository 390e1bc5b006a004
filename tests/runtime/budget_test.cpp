#include <strata/runtime/memory/budget.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(BudgetTest, AReservationCountsUntilItIsDestroyed) {
  Budget budget("pinned", 100);
  {
    const Reservation held = must(budget.reserve(60, "a chunk"));
    EXPECT_EQ(budget.reserved_bytes(), 60u);
    EXPECT_EQ(budget.free_bytes(), 40u);
  }
  EXPECT_EQ(budget.reserved_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 60u);
}

TEST(BudgetTest, ARefusalNamesTheTierAndAllNumbersAndReservesNothing) {
  Budget budget("device", 100);
  Reservation used = must(budget.reserve(30, "chunk 1"));
  used.commit();
  const Reservation reserved = must(budget.reserve(50, "chunk 2"));
  const Status status = budget.reserve(21, "chunk 3").status();
  EXPECT_EQ(status.code(), Code::does_not_fit);
  EXPECT_EQ(status.message(), "chunk 3 needs 21 bytes of device, which has 30 used and 50 reserved of 100");
  EXPECT_EQ(budget.free_bytes(), 20u);
  EXPECT_EQ(budget.peak_bytes(), 80u);
}

TEST(BudgetTest, CommitTurnsReservedIntoUsedOnce) {
  Budget budget("device", 100);
  Reservation held = must(budget.reserve(70, "a slab"));
  held.commit();
  held.commit();
  EXPECT_EQ(budget.used_bytes(), 70u);
  EXPECT_EQ(budget.reserved_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 70u);
  held.release();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(BudgetTest, MoveAssignmentReleasesTheOldBytesImmediately) {
  Budget budget("device", 100);
  Reservation a = must(budget.reserve(60, "a"));
  Reservation b = must(budget.reserve(40, "b"));
  a.commit();
  a = std::move(b);
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.reserved_bytes(), 40u);
  EXPECT_EQ(a.bytes(), 40u);
  EXPECT_FALSE(a.committed());
  EXPECT_TRUE(budget.reserve(60, "c").has_value());
}

TEST(BudgetTest, MoveAssignmentToItselfKeepsTheBytes) {
  Budget budget("device", 100);
  Reservation a = must(budget.reserve(60, "a"));
  Reservation& same = a;
  a = std::move(same);
  EXPECT_EQ(a.bytes(), 60u);
  EXPECT_EQ(budget.reserved_bytes(), 60u);
}

TEST(BudgetTest, MergedBytesAreReleasedOnce) {
  Budget budget("device", 100);
  {
    Reservation chunk;
    chunk.merge(must(budget.reserve(10, "hi")));
    chunk.merge(must(budget.reserve(20, "lo")));
    EXPECT_EQ(chunk.bytes(), 30u);
    EXPECT_EQ(budget.reserved_bytes(), 30u);
  }
  EXPECT_EQ(budget.reserved_bytes(), 0u);
}

TEST(BudgetTest, AnUnlimitedBudgetDoesNotOverflow) {
  Budget budget("nvme");
  const Reservation most = must(budget.reserve(Budget::kUnlimited - 1, "most"));
  EXPECT_FALSE(budget.reserve(2, "too much").has_value());
  EXPECT_TRUE(budget.reserve(0, "nothing").has_value());
}

TEST(BudgetTest, RandomUseNeverExceedsTheLimitAndCountsExactly) {
  constexpr std::size_t kLimit = 1000;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  Budget budget("device", kLimit);
  std::deque<Reservation> held;
  std::size_t expected = 0, peak = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = rng() % 200;
    if (Result<Reservation> got = budget.reserve(bytes, "x"); got.has_value()) {
      held.push_back(std::move(*got));
      expected += bytes;
      peak = std::max(peak, expected);
      if (rng() % 2 == 0) held.back().commit();
    } else {
      ASSERT_GT(expected + bytes, kLimit);
      expected -= held.front().bytes();
      held.pop_front();
    }
    ASSERT_EQ(budget.used_bytes() + budget.reserved_bytes(), expected);
    ASSERT_LE(expected, kLimit);
  }
  EXPECT_EQ(budget.peak_bytes(), peak);
}

TEST(BudgetDeathTest, DestroyingABudgetWithALiveReservationAborts) {
  EXPECT_DEATH(
      {
        Reservation survivor;
        {
          Budget budget("device", 10);
          survivor = must(budget.reserve(4, "x"));
        }
      },
      "budget device is destroyed with 0 bytes used and 4 reserved");
}

}  // namespace
}  // namespace strata

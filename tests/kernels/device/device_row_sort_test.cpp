// Runs the device's sort of tokens by table row on the host, one thread of the block after the other.
#include "cuda/embedding/row_sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/emulation/thread_block.h"

namespace strata::kernels::detail {
namespace {

constexpr int kTile = 64;

struct SortCase {
  std::int64_t vocab, tokens, offset;
  std::uint32_t spread;  // ids are below this
};

/// Runs `body` with the block's threads in forward and in reverse order.
template <class Body>
void in_both_orders(const Body& body) {
  body(EmulatedThreads<kTile>());
  body(EmulatedThreads<kTile, true>());
}

class DeviceRowSortTest : public ::testing::TestWithParam<SortCase> {
 protected:
  static std::vector<std::int32_t> ids_of(const SortCase& c) {
    std::vector<std::int32_t> ids;
    std::uint32_t state = 7;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      state = state * 1664525u + 1013904223u;
      ids.push_back(static_cast<std::int32_t>((state >> 8) % c.spread));
    }
    return ids;
  }
};

TEST_P(DeviceRowSortTest, RowBeginsArePrefixSums) {
  const SortCase& c = GetParam();
  std::vector<std::int32_t> counted(static_cast<std::size_t>(c.vocab) + 1, 0);
  for (const std::int32_t id : ids_of(c)) ++counted[static_cast<std::size_t>(id + c.offset)];
  std::vector<std::int32_t> expected(counted.size());
  std::exclusive_scan(counted.begin(), counted.end(), expected.begin(), 0);
  in_both_orders([&](const auto& block) {
    std::vector<std::int32_t> counts = counted;
    ScanSharedStorage<kTile> memory;
    scan_row_begins<kTile>(block, memory, counts.data(), c.vocab);
    EXPECT_EQ(counts, expected);
  });
}

TEST_P(DeviceRowSortTest, SortIsStable) {
  const SortCase& c = GetParam();
  const std::vector<std::int32_t> ids = ids_of(c);
  std::vector<std::int32_t> expected(ids.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
    return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
  });
  in_both_orders([&](const auto& block) {
    std::vector<std::int32_t> begin(static_cast<std::size_t>(c.vocab) + 1, 0);
    for (const std::int32_t id : ids) ++begin[static_cast<std::size_t>(id + c.offset)];
    ScanSharedStorage<kTile> begin_memory;
    scan_row_begins<kTile>(block, begin_memory, begin.data(), c.vocab);
    std::vector<std::int32_t> order(ids.size(), -1);
    SortSharedStorage<kTile> memory;
    sort_tokens<kTile>(block, memory, ids.data(), TableRows{c.offset, c.vocab}, begin.data(), order.data(),
                       c.tokens);
    EXPECT_EQ(order, expected);
    std::int32_t at = 0;
    for (std::int64_t v = 0; v < c.vocab; ++v) {
      const RowRange range = range_of_row(begin.data(), v);
      EXPECT_EQ(range.from, at);
      for (std::int32_t i = range.from; i < range.to; ++i) {
        const auto token = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
        EXPECT_EQ(ids[token] + c.offset, v);
      }
      at = range.to;
    }
    EXPECT_EQ(at, c.tokens);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, DeviceRowSortTest,
                         ::testing::Values(SortCase{1, 5, 0, 1}, SortCase{64, 64, 0, 64},
                                           SortCase{65, 130, 0, 65}, SortCase{1000, 777, 0, 1000},
                                           SortCase{200, 1000, 2, 3}, SortCase{300, 63, 100, 150},
                                           SortCase{64, 0, 0, 1}),
                         [](const auto& test) {
                           return std::to_string(test.param.tokens) + "_tokens_over_" +
                                  std::to_string(test.param.vocab) + "_rows";
                         });

}  // namespace
}  // namespace strata::kernels::detail

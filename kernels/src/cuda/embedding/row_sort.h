#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/thread_block.h"

/// A stable sort of tokens by their table row, done by one block of kTile threads.
namespace strata::kernels::detail {

/// The row of a table of `count` rows that an id means; `count` for rows that it does not have.
struct TableRows {
  std::int64_t offset, count;
  STRATA_HD std::int64_t operator()(std::int32_t id) const {
    const std::int64_t row = id + offset;
    return row >= 0 && row < count ? row : count;
  }
};

template <int kTile>
struct ScanSharedStorage {
  std::int32_t sums[2][kTile];
  std::int32_t before;
};
/// Replaces counts[v], the number of tokens of row v, by the index at which row v begins, and sets
/// counts[vocab] to the number of tokens. The prefix sums are computed tile by tile (Hillis & Steele 1986).
template <int kTile, class ThreadBlock>
STRATA_DEVICE_INLINE void scan_row_begins(const ThreadBlock& block, ScanSharedStorage<kTile>& m,
                                          std::int32_t* counts, std::int64_t vocab) {
  block.run_and_sync([&](int i) {
    if (i == 0) m.before = 0;
  });
  for (std::int64_t first = 0; first < vocab; first += kTile) {
    block.run_and_sync([&](int i) { m.sums[0][i] = first + i < vocab ? counts[first + i] : 0; });
    int from = 0;
    for (int stride = 1; stride < kTile; stride *= 2, from = 1 - from)
      block.run_and_sync([&](int i) {
        m.sums[1 - from][i] = m.sums[from][i] + (i >= stride ? m.sums[from][i - stride] : 0);
      });
    // The prefix sums include the row's own count.
    block.run_and_sync([&](int i) {
      if (first + i < vocab) counts[first + i] = m.before + m.sums[from][i] - counts[first + i];
    });
    block.run_and_sync([&](int i) {
      if (i == 0) m.before += m.sums[from][kTile - 1];
    });
  }
  block.run_and_sync([&](int i) {
    if (i == 0) counts[vocab] = m.before;
  });
}

template <int kTile>
struct SortSharedStorage {
  std::int32_t rows[kTile];
  std::int32_t ends[kTile];  // the index after a row's last token in the tile; negative for all other tokens
};
/// Sorts tile by tile: a token's index is begin[] of its row plus the number of earlier tokens of that row in
/// the tile. Leaves begin[v] at the end of row v, which is where row v + 1 began.
template <int kTile, class ThreadBlock>
STRATA_DEVICE_INLINE void sort_tokens(const ThreadBlock& block, SortSharedStorage<kTile>& m,
                                      const std::int32_t* ids, TableRows rows, std::int32_t* begin,
                                      std::int32_t* order, std::int64_t tokens) {
  for (std::int64_t first = 0; first < tokens; first += kTile) {
    const auto held = static_cast<int>(tokens - first < kTile ? tokens - first : kTile);
    block.run_and_sync([&](int me) {
      if (me < held) m.rows[me] = static_cast<std::int32_t>(rows(ids[first + me]));
    });
    block.run_and_sync([&](int me) {
      if (me >= held) return;
      std::int32_t before = 0;
      bool is_last = true;
      for (int other = 0; other < held; ++other) {
        const bool same = m.rows[other] == m.rows[me];
        before += same && other < me ? 1 : 0;
        is_last = is_last && !(same && other > me);
      }
      const std::int32_t place = begin[m.rows[me]] + before;
      order[place] = static_cast<std::int32_t>(first + me);
      m.ends[me] = is_last ? place + 1 : -1;
    });
    // All threads have read begin[] for this tile.
    block.run_and_sync([&](int me) {
      if (me < held && m.ends[me] >= 0) begin[m.rows[me]] = m.ends[me];
    });
  }
}

/// The indices in `order` of the tokens of row `v`, for `begin` as sort_tokens leaves it.
struct RowRange {
  std::int32_t from, to;
};
STRATA_HD RowRange range_of_row(const std::int32_t* begin, std::int64_t v) {
  return {v > 0 ? begin[v - 1] : 0, begin[v]};
}

}  // namespace strata::kernels::detail

#pragma once

#include <cstdint>

#include "cuda/thread_block.h"

/// Tokens sorted by the row of a table that they take, those of a row in their own order, by one block of
/// kTile threads.
namespace strata::kernels::detail {

template <int kTile>
struct ScanSharedStorage {
  std::int32_t sums[2][kTile];
  std::int32_t before;
};
/// counts[v], of how many tokens row v has, becomes where row v begins; counts[vocab] the number of tokens.
/// Prefix sums of a tile of rows after the other (Hillis & Steele 1986).
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
    // A sum holds its own row's tokens, which come after its beginning.
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
  std::int32_t ends[kTile];  // where a row goes on behind its last token of the tile; below 0: not the last
};
/// A tile of tokens after the other: a token's place is where its row goes on, behind those of its tile that
/// are of the same row and before it. Leaves begin[v] at the end of row v, which is where row v + 1 began.
template <int kTile, class ThreadBlock>
STRATA_DEVICE_INLINE void sort_tokens(const ThreadBlock& block, SortSharedStorage<kTile>& m,
                                      const std::int32_t* ids, std::int64_t offset, std::int32_t* begin,
                                      std::int32_t* order, std::int64_t tokens) {
  for (std::int64_t first = 0; first < tokens; first += kTile) {
    const auto held = static_cast<int>(tokens - first < kTile ? tokens - first : kTile);
    block.run_and_sync([&](int me) {
      if (me < held) m.rows[me] = static_cast<std::int32_t>(ids[first + me] + offset);
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
    // All have read where their rows go on.
    block.run_and_sync([&](int me) {
      if (me < held && m.ends[me] >= 0) begin[m.rows[me]] = m.ends[me];
    });
  }
}

/// Of the tokens of row `v`, as sort_tokens leaves `begin`: their places in the order.
struct RowRange {
  std::int32_t from, to;
};
STRATA_HD RowRange range_of_row(const std::int32_t* begin, std::int64_t v) {
  return {v > 0 ? begin[v - 1] : 0, begin[v]};
}

}  // namespace strata::kernels::detail

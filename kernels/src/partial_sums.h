#pragma once

#include <algorithm>

#include <strata/simd/convert.h>
#include <strata/dispatch/ranges.h>

#include "dtype_dispatch.h"
#include "row_table.h"
#include "work_split.h"

namespace strata::kernels::detail {

/// out[first, first + n) (+)= sum, rounded once if `out` is 16-bit; `accumulate` requires an f32 `out`.
inline void store_sum(const TensorView& out, std::int64_t first, const float* sum, std::int64_t n,
                      bool accumulate) {
  if (accumulate) {
    row_table().accumulate_row(out.as<float>() + first, sum, n);
    return;
  }
  dispatch_dtype(out.dtype,
                 [&]<class T>(std::type_identity<T>) { simd::narrow(sum, out.as<T>() + first, n); });
}

/// Sums rows over fixed blocks of rows, in parallel: add(row, sum) adds a row to the `columns` values of its
/// block's sum. The sums follow each other in `partials`. Returns the number of blocks.
template <class Add>
std::int64_t sum_row_blocks(std::int64_t rows, std::int64_t columns, float* partials, ThreadPool& pool,
                            const Add& add) {
  const RowBlocks blocks = row_blocks(rows);
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* const sum = partials + block * columns;
    std::fill_n(sum, columns, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t row = block * blocks.rows; row < end; ++row) add(row, sum);
  });
  return blocks.count;
}

/// out (+)= partials[0] + partials[1] + ..., in that order; partial i begins at partials + i * stride.
/// Parallel over columns. The sum is computed in the first partial, which is overwritten.
inline void sum_partials(float* partials, std::int64_t count, std::int64_t stride, const TensorView& out,
                         bool accumulate, ThreadPool& pool) {
  const RowTable& table = row_table();
  dispatch::parallel_for_ranges(pool, out.n_elems(), 1024, [&](std::int64_t first, std::int64_t n) {
    if (count == 0) {  // zero has all bits zero in every dtype
      if (!accumulate)
        std::fill_n(out.data + static_cast<std::size_t>(first) * size_of(out.dtype),
                    static_cast<std::size_t>(n) * size_of(out.dtype), std::byte{0});
      return;
    }
    for (std::int64_t i = 1; i < count; ++i)
      table.accumulate_row(partials + first, partials + i * stride + first, n);
    store_sum(out, first, partials + first, n, accumulate);
  });
}

}  // namespace strata::kernels::detail

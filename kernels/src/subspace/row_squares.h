#pragma once

#include <strata/dispatch/check.h>
#include <strata/dispatch/ranges.h>

#include "dtype_dispatch.h"
#include "simd_table.h"
#include "subspace/gradient_squares.h"
#include "work_split.h"

/// Checks and sums that the host's ops on subspaces share.
namespace strata::kernels::detail {

/// Requires a tensor of f32, bf16 or f16, whatever the op's other tensors are, with `n` elements.
inline void check_stored(dispatch::Check& check, const char* name, const TensorView& view, std::int64_t n) {
  check.require(is_stored_dtype(view.dtype), name, " is ", to_string(view.dtype),
                "; it must be f32, bf16 or f16");
  check.elements(name, view, view.dtype, n);
}

inline void sum_row_squares(const SquareRows& rows, DType dtype, ThreadPool& pool) {
  dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    const SimdTable<T>& table = simd_table<T>();
    dispatch::parallel_for_ranges(
        pool, rows.count(), rows_per_item(rows.length), [&](std::int64_t first, std::int64_t n) {
          for (std::int64_t i = first; i < first + n; ++i)
            rows.sums[i] = table.square_sum(static_cast<const T*>(rows.values) + i * rows.length,
                                            std::min(rows.length, rows.total - i * rows.length));
        });
  });
}

}  // namespace strata::kernels::detail

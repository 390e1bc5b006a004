#pragma once

#include <algorithm>

#include "op.h"
#include "row_table.h"

namespace strata::kernels::detail {

/// out (+)= partials[0] + partials[1] + ..., in that order; partial i begins at partials + i * stride.
/// Parallel over columns, by way of the first partial, which is overwritten.
inline void sum_partials(float* partials, std::int64_t count, std::int64_t stride, std::int64_t columns,
                         float* out, bool accumulate, ThreadPool& pool) {
  const RowTable& table = row_table();
  for_runs(pool, columns, 1024, [&](std::int64_t first, std::int64_t n) {
    if (count == 0) {
      if (!accumulate) std::fill_n(out + first, n, 0.0f);
      return;
    }
    for (std::int64_t i = 1; i < count; ++i) table.add_to(partials + first, partials + i * stride + first, n);
    if (accumulate)
      table.add_to(out + first, partials + first, n);
    else
      std::copy_n(partials + first, n, out + first);
  });
}

}  // namespace strata::kernels::detail

#pragma once

#include <strata/dispatch/check.h>
#include <strata/kernels/lora_parts.h>

#include "gemm/part_sums.h"

namespace strata::kernels::detail {

/// Parts are in order and do not overlap, so that each row of the matrix has one adapter.
inline void check_parts(dispatch::Check& check, const LoraParts& parts, std::int64_t rows) {
  check.require(parts.n > 0 && parts.n <= parts.part.size(), "there are ", parts.n,
                " parts; there must be 1 to ", parts.part.size());
  std::int64_t end = 0;
  for (const LoraPart& part : parts.all()) {
    check.require(
        part.rank > 0 && part.rows > 0 && part.first_row >= end && part.first_row + part.rows <= rows,
        "a part adapts rows ", part.first_row, " to ", part.first_row + part.rows, " of ", rows,
        " with rank ", part.rank, ", after a part that ends at row ", end);
    end = part.first_row + part.rows;
  }
}

}  // namespace strata::kernels::detail

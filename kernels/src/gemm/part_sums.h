#pragma once

#include <cstdint>

#include <strata/kernels/lora_parts.h>

namespace strata::kernels::detail {

/// Sums over the parts of an adapted matrix.
struct PartSums {
  std::int64_t ranks = 0, rows = 0, elems = 0;  ///< elems: of b
};
inline PartSums sums_of(const LoraParts& parts) noexcept {
  PartSums sums;
  for (const LoraPart& part : parts.all()) {
    sums.ranks += part.rank;
    sums.rows += part.rows;
    sums.elems += part.rows * part.rank;
  }
  return sums;
}

}  // namespace strata::kernels::detail

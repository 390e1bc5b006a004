#include <strata/simd/normal.h>

#include <algorithm>
#include <cstddef>

#include <strata/runtime/rng.h>

#include "normal_table.h"

namespace strata::simd {

// Where both bounds are the same f32 it is the value's: about all but one in 2^18 need no libm. A value of 0
// has bounds of either sign, unless its radius is 0, too.
void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                 std::span<float> values) noexcept {
  const detail::NormalTable& kernels = STRATA_ACTIVE_TABLE(normal_table);
  const Rng rng(seed, stream);
  float below[detail::kNormalsAtOnce], above[detail::kNormalsAtOnce];
  for (std::size_t at = 0; at < values.size(); at += detail::kNormalsAtOnce) {
    const std::uint64_t index = first + at;
    const std::size_t n = std::min<std::size_t>(detail::kNormalsAtOnce, values.size() - at);
    kernels.bounds({seed, stream, index}, below, above);
    bool are_known = true;
    for (std::size_t i = 0; i < n; ++i) {
      are_known &= below[i] == above[i] && below[i] != 0;
      values[at + i] = below[i];
    }
    for (std::size_t i = 0; i < n && !are_known; ++i)
      if (below[i] != above[i] || below[i] == 0) values[at + i] = rng.normal(index + i);
  }
}

}  // namespace strata::simd

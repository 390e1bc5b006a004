#pragma once

// Used by both row_kernels.h and simd_kernels.h.
#include <strata/simd/simd.h>

#include "lowest_score.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::for_each_16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::max_of;
using simd::STRATA_ISA::reduce_add;
using simd::STRATA_ISA::reduce_max;
using simd::STRATA_ISA::store_lanes;

// Lanes past the end of a row are filled with it, so that they do not affect a maximum.
constexpr float kLowest = detail::kLowestScore;

template <class T>
float reduce_row_max(const T* x, std::int64_t n) {
  f32x16 row_max(kLowest);
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { row_max = max_of(load_lanes(x + i, lanes, kLowest), row_max); });
  return reduce_max(row_max);
}

template <class T>
void accumulate_row(float* acc, const T* x, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(acc + i, load_lanes(acc + i, lanes) + load_lanes(x + i, lanes), lanes);
  });
}

}  // namespace
}  // namespace strata::kernels::STRATA_ISA

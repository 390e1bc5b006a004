#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

template <class Lanes, class T>
STRATA_DEVICE_INLINE float row_score(const Lanes& lanes, const T* x, const T* weight, const T* bias,
                                     std::int64_t k) {
  const float dot =
      lanes.template sum<float>(k, [&](std::int64_t i) { return to_f32(x[i]) * to_f32(weight[i]); });
  return dot + (bias == nullptr ? 0.0f : to_f32(*bias));
}
/// The weight's gradient of one column, summed over the rows from `first` to `end` in order; the bias's, if
/// the column is k.
template <class T>
STRATA_HD float score_column(const T* x, const float* dscores, std::int64_t column, std::int64_t k,
                             std::int64_t first, std::int64_t end) {
  float sum = 0.0f;
  for (std::int64_t t = first; t < end; ++t)
    sum = sum + (column < k ? to_f32(x[t * k + column]) * dscores[t] : dscores[t]);
  return sum;
}

}  // namespace strata::kernels::detail

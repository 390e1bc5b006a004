#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

#include "recurrent/gated_norm_math.h"

/// A head of the gated RMS norm for a half warp or what emulates one, and a column of the sum over heads.
namespace strata::kernels::detail {

template <class Rule, class Lanes, class T>
STRATA_DEVICE_INLINE float gated_norm_row(const Lanes& lanes, const T* x, const T* z, const T* weight, T* y,
                                          float eps, std::int64_t n) {
  const float squares = lanes.template sum<float>(n, [&](std::int64_t i) {
    const float v = Rule::input(to_f32(x[i]), to_f32(z[i]));
    return v * v;
  });
  const float rstd = gated_norm_rstd(squares, eps, n);
  lanes.for_each(n, [&](std::int64_t i) {
    y[i] = from_f32<T>(Rule::value(to_f32(x[i]), to_f32(z[i]), to_f32(weight[i]), rstd));
  });
  return rstd;
}
template <class Rule, class Lanes, class T>
STRATA_DEVICE_INLINE void gated_norm_row_backward(const Lanes& lanes, const T* x, const T* z, const T* weight,
                                                  float rstd, const T* dy, T* dx, T* dz, std::int64_t n) {
  const float mean = lanes.template sum<float>(n, [&](std::int64_t i) {
    const float of_x = to_f32(x[i]), of_z = to_f32(z[i]);
    return Rule::d_normal(of_z, to_f32(weight[i]), to_f32(dy[i])) * (Rule::input(of_x, of_z) * rstd);
  }) / static_cast<float>(n);
  lanes.for_each(n, [&](std::int64_t i) {
    const float of_x = to_f32(x[i]), of_z = to_f32(z[i]), w = to_f32(weight[i]), d = to_f32(dy[i]);
    dx[i] = from_f32<T>(Rule::d_x(of_x, of_z, w, rstd, mean, d));
    dz[i] = from_f32<T>(Rule::d_gate(of_x, of_z, w, rstd, mean, d));
  });
}
/// The rows [first, last) of column `column` of those that have a weight of their own; n: elements of a head.
template <class Rule, class T>
STRATA_DEVICE_INLINE float gated_norm_column(const T* x, const T* z, const float* rstd, const T* dy,
                                             std::int64_t first, std::int64_t last, std::int64_t column,
                                             std::int64_t columns, std::int64_t n) {
  float sum = 0.0f;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t at = i * columns + column;
    sum = sum + Rule::d_weight(to_f32(x[at]), to_f32(z[at]), rstd[at / n], to_f32(dy[at]));
  }
  return sum;
}

}  // namespace strata::kernels::detail

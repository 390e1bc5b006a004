#pragma once

#include <cstdint>

#include "cuda/row_math.h"

/// The arithmetic of norms on one row or one column of a block of rows, with the operations of the host's
/// SIMD kernels in the same order (row_math.h).
namespace strata::kernels::detail {

/// What a norm knows of a row before it writes the row's elements. RMSNorm has no means of x and of g.
struct RowStats {
  float mean = 0, rstd = 0;
  float mean_g = 0, mean_gx = 0;  ///< backward: of the weighted gradient, alone and times the normalized x
};

// --- layer norm

template <class Lanes, class T>
STRATA_DEVICE_INLINE RowStats layernorm_stats(const Lanes& lanes, const T* x, float eps, std::int64_t n) {
  const auto count = static_cast<float>(n);
  RowStats s;
  s.mean = lanes.template sum<float>(n, [&](std::int64_t i) { return to_f32(x[i]); }) / count;
  const float squares = lanes.template sum<float>(n, [&](std::int64_t i) {
    const float d = to_f32(x[i]) - s.mean;
    return d * d;
  });
  s.rstd = 1.0f / simd::sqrt_of(squares / count + eps);
  return s;
}
template <class T>
STRATA_HD T layernorm_element(const RowStats& s, T x, T weight, T bias) {
  const float normal = (to_f32(x) - s.mean) * s.rstd;
  return from_f32<T>(normal * to_f32(weight) + to_f32(bias));
}

/// Adds the means of the backward to those of the forward in `s`.
template <class Lanes, class T>
STRATA_DEVICE_INLINE RowStats layernorm_back_stats(const Lanes& lanes, RowStats s, const T* x,
                                                   const T* weight, const T* dy, std::int64_t n) {
  const auto count = static_cast<float>(n);
  const auto weighted = [&](std::int64_t i) { return to_f32(dy[i]) * to_f32(weight[i]); };
  s.mean_g = lanes.template sum<float>(n, weighted) / count;
  s.mean_gx = lanes.template sum<float>(n, [&](std::int64_t i) {
    return weighted(i) * ((to_f32(x[i]) - s.mean) * s.rstd);
  }) / count;
  return s;
}
template <class T>
STRATA_HD float layernorm_back_element(const RowStats& s, T x, T weight, T dy) {
  const float normal = (to_f32(x) - s.mean) * s.rstd;
  return s.rstd * (to_f32(dy) * to_f32(weight) - s.mean_g - normal * s.mean_gx);
}

struct WeightBias {
  float weight = 0, bias = 0;
};
STRATA_HD void add_to_column(WeightBias& sum, float x, float dy, float mean, float rstd) {
  sum.weight = sum.weight + dy * ((x - mean) * rstd);
  sum.bias = sum.bias + dy;
}

// --- RMSNorm, of rows and of heads

template <class Lanes, class T>
STRATA_DEVICE_INLINE RowStats rmsnorm_stats(const Lanes& lanes, const T* x, float eps, std::int64_t n) {
  const float squares =
      lanes.template sum<float>(n, [&](std::int64_t i) { return to_f32(x[i]) * to_f32(x[i]); });
  RowStats s;
  s.rstd = 1.0f / simd::sqrt_of(squares / static_cast<float>(n) + eps);
  return s;
}
template <class T>
STRATA_HD T rmsnorm_element(const RowStats& s, T x, T weight, float offset) {
  return from_f32<T>(to_f32(x) * s.rstd * (to_f32(weight) + offset));
}

/// `weight(i)` is the whole factor of element i.
template <class Lanes, class T, class Weight>
STRATA_DEVICE_INLINE RowStats rmsnorm_back_stats(const Lanes& lanes, RowStats s, const T* x,
                                                 const Weight& weight, const T* dy, std::int64_t n) {
  s.mean_gx = lanes.template sum<float>(n, [&](std::int64_t i) {
    return to_f32(dy[i]) * weight(i) * (to_f32(x[i]) * s.rstd);
  }) / static_cast<float>(n);
  return s;
}
template <class T>
STRATA_HD float rmsnorm_back_element(const RowStats& s, T x, T weight, T dy, float offset) {
  const float normal = to_f32(x) * s.rstd;
  return s.rstd * (to_f32(dy) * (to_f32(weight) + offset) - normal * s.mean_gx);
}
STRATA_HD void add_to_column(float& sum, float x, float dy, float rstd) { sum = sum + dy * (x * rstd); }

}  // namespace strata::kernels::detail

#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

/// The gated RMS norm of one element, or of the lanes of a SIMD value: the same operations in the same order
/// on every instruction set and on CUDA. `rstd` is 1 / sqrt(the mean of the squares + eps).
namespace strata::kernels::detail {

STRATA_HD float gated_norm_rstd(float squares, float eps, std::int64_t n) {
  return 1.0f / simd::sqrt_of(squares / static_cast<float>(n) + eps);
}
template <class V>
STRATA_HD V gated_norm_value(V x, V z, V weight, V rstd) {
  return x * rstd * weight * (z * simd::sigmoid_of(z).value);
}
/// The gradient of the normalized x, of which `mean` is the mean product with the normalized x.
template <class V>
STRATA_HD V gated_norm_d_normal(V z, V weight, V dy) {
  return dy * (z * simd::sigmoid_of(z).value) * weight;
}
template <class V>
STRATA_HD V gated_norm_d_x(V x, V z, V weight, V rstd, V mean, V dy) {
  return rstd * (gated_norm_d_normal(z, weight, dy) - x * rstd * mean);
}
template <class V>
STRATA_HD V gated_norm_d_gate(V x, V z, V weight, V rstd, V dy) {
  const auto s = simd::sigmoid_of(z);
  return dy * (x * rstd * weight) * (s.value + z * (s.value * s.complement));
}
template <class V>
STRATA_HD V gated_norm_d_weight(V x, V z, V rstd, V dy) {
  return dy * (z * simd::sigmoid_of(z).value) * (x * rstd);
}

}  // namespace strata::kernels::detail

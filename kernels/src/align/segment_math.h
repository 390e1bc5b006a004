#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>

namespace strata::kernels::detail {

/// The sum, or the mean, of `count` values.
STRATA_HD float segment_result(double sum, double count, bool mean) {
  return static_cast<float>(mean && count > 0.0 ? sum / count : sum);
}
/// The gradient of a value in `segment`. `counts` are given for means.
STRATA_HD float segment_gradient(std::int32_t segment, const float* dsums, const float* counts) {
  if (segment < 0) return 0.0f;
  return counts == nullptr ? dsums[segment] : dsums[segment] / counts[segment];
}

}  // namespace strata::kernels::detail

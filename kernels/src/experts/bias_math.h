#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>
#include <strata/simd/math/host_device.h>

#include "experts/router_math.h"

/// The elements of the ops of biases.h, on the host and on a GPU in the same order.
namespace strata::kernels::detail {

inline constexpr std::int64_t kBiasPanel = 64;

/// Column `c` of what the biases of the `k` experts of a token add to it.
template <class T>
STRATA_HD float expert_bias_of_token(const T* bias, const float* weights, const std::int32_t* experts,
                                     std::int64_t k, std::int64_t n_experts, std::int64_t h, std::int64_t c) {
  float sum = 0.0f;
  for (std::int64_t j = 0; j < k; ++j)
    sum = sum + weights[j] * to_f32(bias[bounded_expert(experts[j], n_experts) * h + c]);
  return sum;
}

/// Column `c` of the gradient of the bias of an expert with the rows [begin, end).
template <class T>
STRATA_HD float expert_bias_gradient(const T* dy, const float* weights, const std::int32_t* source,
                                     std::int64_t begin, std::int64_t end, std::int64_t k, std::int64_t h,
                                     std::int64_t c) {
  float total = 0.0f;
  for (std::int64_t panel = begin; panel < end; panel += kBiasPanel) {
    const std::int64_t last = panel + kBiasPanel < end ? panel + kBiasPanel : end;
    float sum = 0.0f;
    for (std::int64_t r = panel; r < last; ++r)
      sum = sum + weights[source[r]] * to_f32(dy[source[r] / k * h + c]);
    total = total + sum;
  }
  return total;
}

/// The gradient of a choice's weight, in every lane.
template <class Lanes, class T>
STRATA_DEVICE_INLINE float expert_bias_weight_gradient(const Lanes& lanes, const T* dy, const T* bias,
                                                       std::int64_t h) {
  return lanes.template sum<float>(h, [&](std::int64_t c) { return to_f32(dy[c]) * to_f32(bias[c]); });
}

}  // namespace strata::kernels::detail

#pragma once

#include <cmath>
#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

/// The arithmetic of merge_attention, attention_delta and sinks for one head of one query, on the host and on
/// a GPU.
namespace strata::kernels::detail {

/// The index of a statistic in [sequences, heads, queries], for row `t` of the output.
STRATA_HD std::int64_t stat_of(std::int64_t t, std::int64_t head, std::int64_t heads, std::int64_t queries) {
  return (t / queries * heads + head) * queries + t % queries;
}

/// The weights of two outputs in that of all keys, and its lse.
struct MergedWeights {
  float a, b, lse;
};
STRATA_HD MergedWeights merge_lse(float a, float b) {
  const float most = a > b ? a : b;
  if (most == -INFINITY) return {0.0f, 0.0f, -INFINITY};
  // exp_of() is not defined for an infinity.
  const float of_a = a == -INFINITY ? 0.0f : simd::exp_of(a - most),
              of_b = b == -INFINITY ? 0.0f : simd::exp_of(b - most), sum = of_a + of_b;
  return {of_a / sum, of_b / sum, most + static_cast<float>(simd::log_of(static_cast<double>(sum)))};
}

template <class T>
STRATA_HD float head_dot(const float* out, const T* dout, std::int64_t d) {
  float sum = 0.0f;
  for (std::int64_t c = 0; c < d; ++c) sum = sum + out[c] * to_f32(dout[c]);
  return sum;
}

/// What a row adds to the gradient of a head's sink.
STRATA_HD double sink_gradient(float lse, float delta, float sink) {
  return -static_cast<double>(simd::exp_of(sink - lse)) * static_cast<double>(delta);
}

}  // namespace strata::kernels::detail

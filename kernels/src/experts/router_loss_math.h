#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

/// The losses of routers: the same code on the host and on CUDA, hence the same bits. `Lanes` is as in
/// router_math.h.
namespace strata::kernels::detail {

/// The softmax of a token: p_e = e^(l_e - top) / sum.
struct TokenSoftmax {
  float top, sum;
};
template <class Lanes>
STRATA_DEVICE_INLINE TokenSoftmax token_softmax(const Lanes& lanes, std::int64_t experts,
                                                const float* logits) {
  const float top = lanes.max(experts, -__builtin_huge_valf(), [&](std::int64_t i) { return logits[i]; });
  return {top,
          lanes.template sum<float>(experts, [&](std::int64_t i) { return simd::exp_of(logits[i] - top); })};
}
STRATA_HD float probability_of(const TokenSoftmax& softmax, float logit) {
  return simd::exp_of(logit - softmax.top) / softmax.sum;
}
STRATA_HD float log_sum_exp_of(const TokenSoftmax& softmax) {
  return softmax.top + static_cast<float>(simd::log_of(static_cast<double>(softmax.sum)));
}

/// The vector of sums: counts of choices, sums of probabilities, and the sum of squares of logsumexp.
STRATA_HD std::int64_t router_sums_of(std::int64_t experts) { return 2 * experts + 1; }
/// The sums over tokens that a layer computes: all but the counts.
STRATA_HD std::int64_t token_sums_of(std::int64_t experts) { return experts + 1; }

/// What a token adds to one of these sums.
STRATA_HD float token_term(const TokenSoftmax& softmax, const float* logits, std::int64_t experts,
                           std::int64_t sum) {
  if (sum < experts) return probability_of(softmax, logits[sum]);
  const float log = log_sum_exp_of(softmax);
  return log * log;
}

/// One of the sums of a layer, after those of the layers before. `partials` has the sums over each block of
/// tokens.
STRATA_HD float router_sum(std::int64_t i, std::int64_t experts, const std::int32_t* offsets,
                           const float* before, const float* partials, std::int64_t blocks) {
  float of_layer = 0.0f;
  if (i < experts) {
    of_layer = static_cast<float>(offsets[i + 1] - offsets[i]);
  } else {
    for (std::int64_t block = 0; block < blocks; ++block)
      of_layer = of_layer + partials[block * token_sums_of(experts) + (i - experts)];
  }
  return before != nullptr ? before[i] + of_layer : of_layer;
}

/// The gradient of a token's logits from that of the sums.
template <class T, class Lanes>
STRATA_DEVICE_INLINE void router_sums_token_backward(const Lanes& lanes, std::int64_t experts,
                                                     const float* logits, const float* dsums, T* dlogits) {
  const TokenSoftmax softmax = token_softmax(lanes, experts, logits);
  const float* const slopes = dsums + experts;
  const float mean = lanes.template sum<float>(
      experts, [&](std::int64_t i) { return probability_of(softmax, logits[i]) * slopes[i]; });
  const float of_square = 2.0f * slopes[experts] * log_sum_exp_of(softmax);
  lanes.for_each(experts, [&](std::int64_t i) {
    dlogits[i] = from_f32<T>(probability_of(softmax, logits[i]) * ((slopes[i] - mean) + of_square));
  });
}

/// Writes the losses of `rows` rows, and 0.
template <class Lanes>
STRATA_DEVICE_INLINE void router_losses_of(const Lanes& lanes, std::int64_t experts, std::int64_t rows,
                                           const float* sums, float* zero, float* losses) {
  const auto n = static_cast<float>(rows);
  const float sum = lanes.template sum<float>(
      experts, [&](std::int64_t i) { return (sums[i] / n) * (sums[experts + i] / n); });
  if (!lanes.is_leader()) return;
  zero[0] = 0.0f;
  losses[0] = static_cast<float>(experts) * sum;
  losses[1] = sums[2 * experts] / n;
}
/// The gradient of one of the sums; the counts have none.
STRATA_HD float router_losses_slope(std::int64_t i, std::int64_t experts, std::int64_t rows,
                                    const float* sums, float aux_coef, float z_coef, float factor) {
  const auto n = static_cast<float>(rows);
  if (i < experts) return 0.0f;
  if (i == 2 * experts) return factor * (z_coef / n);
  return factor * (aux_coef * (static_cast<float>(experts) * ((sums[i - experts] / n) / n)));
}

}  // namespace strata::kernels::detail

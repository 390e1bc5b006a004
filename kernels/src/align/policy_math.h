#pragma once

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/kernels/align/loss_options.h>

#include "align/loss_operands.h"
#include "align/loss_reduction.h"

namespace strata::kernels::detail {

/// e^d with d limited to +-80: finite, and not 0.
STRATA_HD float limited_exp(float d) { return simd::exp_of(d > 80.0f ? 80.0f : d < -80.0f ? -80.0f : d); }
/// e^d - 1 - d, which is not below 0, without cancellation for small d.
STRATA_HD float exp_minus_linear(float d) {
  if (d > 0.5f || d < -0.5f || !(d == d)) return limited_exp(d) - 1.0f - d;
  float q = 2.48015873e-5f;  // 1 / 8!
  q = q * d + 1.98412698e-4f;
  q = q * d + 1.38888889e-3f;
  q = q * d + 8.33333333e-3f;
  q = q * d + 4.16666667e-2f;
  q = q * d + 1.66666667e-1f;
  q = q * d + 0.5f;
  return d * d * q;
}

struct PolicyLoss {
  static constexpr int kSums = 6, kMaxima = 1;
  const float* log_probs;
  const float* old_log_probs;
  const float* advantages;
  const float* weights;
  const float* ref_log_probs;  ///< null: none
  PolicyLossOptions options;

  struct Surrogate {
    float ratio, value;
    bool clipped;
  };
  STRATA_HD Surrogate surrogate(std::int64_t i) const {
    const float ratio = limited_exp(log_probs[i] - old_log_probs[i]);
    const float low = 1.0f - options.clip_low, high = 1.0f + options.clip_high;
    const float bounded = ratio < low ? low : ratio > high ? high : ratio;
    const float free = ratio * advantages[i], held = bounded * advantages[i];
    return {ratio, held < free ? held : free, held < free};
  }
  /// The estimate of KL(policy || reference), and its derivative with respect to log_probs[i].
  STRATA_HD float kl(std::int64_t i) const {
    if (ref_log_probs == nullptr) return 0.0f;
    const float d = ref_log_probs[i] - log_probs[i];
    return options.kl == KlEstimator::k1 ? 0.0f - d : exp_minus_linear(d);
  }
  STRATA_HD float kl_slope(std::int64_t i) const {
    if (ref_log_probs == nullptr) return 0.0f;
    const float d = ref_log_probs[i] - log_probs[i];
    return options.kl == KlEstimator::k1 ? 1.0f : 0.0f - (exp_minus_linear(d) + d);
  }
  STRATA_HD void add(std::int64_t i, double* sums) const {
    if (weights[i] == 0.0f) return;
    const auto w = static_cast<double>(weights[i]);
    const Surrogate s = surrogate(i);
    const float divergence = kl(i), old = exp_minus_linear(log_probs[i] - old_log_probs[i]);
    const auto ratio = static_cast<double>(s.ratio);
    sums[0] = sums[0] + w * static_cast<double>(options.kl_coef * divergence - s.value);
    sums[1] = sums[1] + w;
    sums[2] = sums[2] + (s.clipped ? w : 0.0);
    sums[3] = sums[3] + w * static_cast<double>(old);
    sums[4] = sums[4] + w * static_cast<double>(divergence);
    sums[5] = sums[5] + w * ratio;
    sums[6] = ratio > sums[6] ? ratio : sums[6];
  }
  STRATA_HD void store_gradient(std::int64_t i, float scale, float* dlog_probs) const {
    if (weights[i] == 0.0f) {
      dlog_probs[i] = 0.0f;
      return;
    }
    const Surrogate s = surrogate(i);
    const float slope = options.kl_coef * kl_slope(i) - (s.clipped ? 0.0f : s.value);
    dlog_probs[i] = weights[i] * scale * slope;
  }
};

/// `tokens` are PolicyTokens.
template <class Tokens>
PolicyLoss policy_loss(const Tokens& t, const PolicyLossOptions& options) {
  return {t.log_probs.template as<float>(),  t.old_log_probs.template as<float>(),
          t.advantages.template as<float>(), t.weights.template as<float>(),
          floats_or_null(t.ref_log_probs),   options};
}

}  // namespace strata::kernels::detail

#pragma once

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/kernels/align/loss_options.h>

#include "align/loss_operands.h"
#include "align/loss_reduction.h"

namespace strata::kernels::detail {

/// -log sigmoid(z) = log(1 + e^-z).
STRATA_HD double minus_log_sigmoid(float z) {
  const float size = z < 0.0f ? 0.0f - z : z;
  const double tail = simd::log_of(1.0 + static_cast<double>(simd::exp_of(0.0f - size)));
  return z < 0.0f ? static_cast<double>(size) + tail : tail;
}

struct PairLoss {
  static constexpr int kSums = 5, kMaxima = 0;
  const float* scores;
  const float* ref_scores;  ///< null: none
  const float* weights;
  const float* margins;  ///< null: none
  PairLossOptions options;

  /// A score minus that of the reference.
  STRATA_HD float reward(std::int64_t at) const {
    return ref_scores == nullptr ? scores[at] : scores[at] - ref_scores[at];
  }
  STRATA_HD float difference(std::int64_t i) const {
    const float chosen = scores[2 * i], rejected = scores[2 * i + 1];
    const float of_ref = ref_scores == nullptr ? 0.0f : ref_scores[2 * i] - ref_scores[2 * i + 1];
    return (chosen - rejected) - of_ref;
  }
  /// The argument of the sigmoid.
  STRATA_HD float logit(std::int64_t i) const {
    const float z = options.beta * difference(i);
    return margins == nullptr ? z : z - margins[i];
  }
  STRATA_HD float ipo_error(std::int64_t i) const { return difference(i) - 1.0f / (2.0f * options.beta); }
  STRATA_HD double loss(std::int64_t i) const {
    if (options.kind == PairLossKind::ipo) {
      const auto e = static_cast<double>(ipo_error(i));
      return e * e;
    }
    const float z = logit(i);
    const auto flipped = static_cast<double>(options.label_smoothing);
    const double loss = (1.0 - flipped) * minus_log_sigmoid(z);
    return flipped == 0.0 ? loss : loss + flipped * minus_log_sigmoid(0.0f - z);
  }
  /// The derivative of the loss with respect to the difference of the scores.
  STRATA_HD float slope(std::int64_t i) const {
    if (options.kind == PairLossKind::ipo) return 2.0f * ipo_error(i);
    const auto s = simd::sigmoid_of(logit(i));
    const float flipped = options.label_smoothing;
    return options.beta * (flipped * s.value - (1.0f - flipped) * s.complement);
  }
  STRATA_HD void add(std::int64_t i, double* sums) const {
    if (weights[i] == 0.0f) return;
    const auto w = static_cast<double>(weights[i]);
    sums[0] = sums[0] + w * loss(i);
    sums[1] = sums[1] + w;
    sums[2] = sums[2] + (difference(i) > 0.0f ? w : 0.0);
    sums[3] = sums[3] + w * static_cast<double>(options.beta * reward(2 * i));
    sums[4] = sums[4] + w * static_cast<double>(options.beta * reward(2 * i + 1));
  }
  STRATA_HD void store_gradient(std::int64_t i, float scale, float* dscores) const {
    const float d = weights[i] == 0.0f ? 0.0f : weights[i] * scale * slope(i);
    dscores[2 * i] = d;
    dscores[2 * i + 1] = 0.0f - d;
  }
};

/// `pairs` are ScorePairs.
template <class Pairs>
PairLoss pair_loss(const Pairs& p, const PairLossOptions& options) {
  return {p.scores.template as<float>(), floats_or_null(p.ref_scores), p.weights.template as<float>(),
          floats_or_null(p.margins), options};
}

}  // namespace strata::kernels::detail

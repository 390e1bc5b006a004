#pragma once

#include <strata/simd/math/host_device.h>
#include <strata/kernels/align/loss_options.h>

#include "align/loss_operands.h"
#include "align/loss_reduction.h"

namespace strata::kernels::detail {

struct ValueLoss {
  static constexpr int kSums = 5, kMaxima = 0;
  const float* values;
  const float* old_values;  ///< null: none
  const float* returns;
  const float* weights;
  float clip;

  struct Errors {
    float free, held;  ///< the error of the value, and the error of the clipped value
    STRATA_HD bool clipped() const { return held * held > free * free; }
  };
  STRATA_HD Errors errors(std::int64_t i) const {
    const float v = values[i], free = v - returns[i];
    if (!(clip > 0.0f)) return {free, free};
    const float low = old_values[i] - clip, high = old_values[i] + clip;
    return {free, (v < low ? low : v > high ? high : v) - returns[i]};
  }
  STRATA_HD void add(std::int64_t i, double* sums) const {
    if (weights[i] == 0.0f) return;
    const auto w = static_cast<double>(weights[i]);
    const Errors e = errors(i);
    const auto free = static_cast<double>(e.free), held = static_cast<double>(e.held);
    sums[0] = sums[0] + w * (0.5 * (e.clipped() ? held * held : free * free));
    sums[1] = sums[1] + w;
    sums[2] = sums[2] + (e.clipped() ? w : 0.0);
    sums[3] = sums[3] + w * (free * free);
    sums[4] = sums[4] + w * static_cast<double>(values[i]);
  }
  /// Where the clipped term is the larger one, the value is outside of the limits, and the term is constant.
  STRATA_HD void store_gradient(std::int64_t i, float scale, float* dvalues) const {
    if (weights[i] == 0.0f) {
      dvalues[i] = 0.0f;
      return;
    }
    const Errors e = errors(i);
    dvalues[i] = weights[i] * scale * (e.clipped() ? 0.0f : e.free);
  }
};

/// `tokens` are ValueTokens.
template <class Tokens>
ValueLoss value_loss(const Tokens& t, const ValueLossOptions& options) {
  return {t.values.template as<float>(), floats_or_null(t.old_values), t.returns.template as<float>(),
          t.weights.template as<float>(), options.clip};
}

}  // namespace strata::kernels::detail

#pragma once

#include <strata/kernels/align/log_prob_scaling.h>

namespace strata::kernels::detail {

/// How a logit l becomes that of the softmax: factor (cap tanh(l / cap)), or factor l if cap is 0. The soft
/// cap is rounded before the product, as where a sampler gets the capped logits of a model and divides them
/// by its temperature.
struct LogitScale {
  explicit LogitScale(const LogProbScaling& scaling)
      : factor(1.0f / scaling.temperature), cap(scaling.softcap) {}
  bool is_identity() const noexcept { return cap == 0.0f && factor == 1.0f; }
  /// The cap of scaled logits.
  float scaled_cap() const noexcept { return cap * factor; }
  float factor, cap;
};

}  // namespace strata::kernels::detail

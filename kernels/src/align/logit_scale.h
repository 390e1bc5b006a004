#pragma once

#include <strata/kernels/align/log_prob_scaling.h>

namespace strata::kernels::detail {

/// How a logit l becomes that of the softmax: cap tanh(factor l / cap), or factor l if cap is 0. That is the
/// soft cap followed by the division by the temperature.
struct LogitScale {
  explicit LogitScale(const LogProbScaling& scaling)
      : factor(1.0f / scaling.temperature), cap(scaling.softcap * factor) {}
  bool is_identity() const noexcept { return cap == 0.0f && factor == 1.0f; }
  float factor, cap;
};

}  // namespace strata::kernels::detail

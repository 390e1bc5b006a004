#pragma once

#include <strata/dispatch/rows.h>
#include <strata/runtime/tensor_view.h>

#include "align/loss_reduction.h"

namespace strata::kernels::detail {

inline const float* floats_or_null(const TensorView& view) {
  return dispatch::is_present(view) ? view.as<float>() : nullptr;
}

/// The call of a loss with the arguments `a`, whose items have these weights.
template <class Loss, class Args>
LossCall<Loss> loss_call(const Loss& loss, const TensorView& weights, const Args& a) {
  return {loss, weights.n_elems(), a.divisor.template as<float>(), a.loss.template as<float>(),
          a.stats.template as<float>()};
}
template <class Loss>
LossGradientCall<Loss> loss_gradient_call(const Loss& loss, const TensorView& weights,
                                          const TensorView& divisor, const TensorView& gradient) {
  return {loss, weights.n_elems(), divisor.as<float>(), gradient.as<float>()};
}

}  // namespace strata::kernels::detail

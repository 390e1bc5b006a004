#pragma once

#include <strata/kernels/align/loss_options.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// f32, T values each; nothing is read of a token whose weight is 0.
struct ValueTokens {
  TensorView values;           ///< v, of the value model
  TensorView old_values = {};  ///< values of the model that sampled; rank 0: none, if nothing is clipped
  TensorView returns;          ///< R
  TensorView weights;          ///< w
};

/// The loss of PPO's value function, with clipped values as in OpenAI's implementation (Engstrom et al. 2020,
/// arXiv 2005.12729, section 3): the sum of w l over tokens, divided by the divisor, with
///   l = max((v - R)^2, (clip(v, old - clip, old + clip) - R)^2) / 2.
struct ValueLossArgs {
  ValueTokens tokens;
  TensorView divisor;  ///< f32, 1 value; not above 0: the loss is 0
  TensorView loss;     ///< f32, 1 value, written
  /// f32, 4 values, written: the sums over tokens of w; w if the clipped term is the larger one; w (v - R)^2;
  /// and w v.
  TensorView stats;
  ValueLossOptions options = {};
};
Status value_loss_async(Backend& backend, Stream& stream, const ValueLossArgs& args);
void value_loss_host(const ValueLossArgs& args, ThreadPool& pool);

/// The gradient of the loss; everything but values is a constant.
struct ValueLossBackwardArgs {
  ValueTokens tokens;
  TensorView divisor;  ///< f32, 1 value
  TensorView dvalues;  ///< f32, T values, written
  ValueLossOptions options = {};
};
Status value_loss_backward_async(Backend& backend, Stream& stream, const ValueLossBackwardArgs& args);
void value_loss_backward_host(const ValueLossBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

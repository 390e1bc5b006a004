#pragma once

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// The biases of routers and experts (gpt-oss). rows.h says what choices and rows are.

/// sums[t, e] = logits[t, e] + bias[e]. Its derivative is that of a linear layer's bias.
struct RouterBiasArgs {
  TensorView logits;  ///< f32 [T, E]
  TensorView bias;    ///< stored dtype [E]
  TensorView sums;    ///< f32 [T, E], written; may be `logits`
};
Status router_bias_async(Backend& backend, Stream& stream, const RouterBiasArgs& args);
void router_bias_host(const RouterBiasArgs& args, ThreadPool& pool);

/// y[t] = the sum of weights[t, j] bias[experts[t, j]], in f32 from j = 0 to k - 1, rounded once: what the
/// biases of experts' second matrices add to a token, whose weights are applied before those matrices
/// (gate.h). An expert outside [0, E) is taken as E - 1.
struct ExpertBiasForwardArgs {
  TensorView bias;     ///< stored dtype [E, H]
  TensorView weights;  ///< f32 [T, k]
  TensorView experts;  ///< i32 [T, k]
  TensorView y;        ///< stored dtype [T, H], written
};
Status expert_bias_forward_async(Backend& backend, Stream& stream, const ExpertBiasForwardArgs& args);
void expert_bias_forward_host(const ExpertBiasForwardArgs& args, ThreadPool& pool);

/// dbias[e] = the sum of weights[source[r]] dy[source[r] / k] over the rows r of e, in f32, in panels of 64
/// rows.
struct ExpertBiasBackwardArgs {
  TensorView dy;       ///< stored dtype [T, H]
  TensorView weights;  ///< f32 [T, k]
  TensorView offsets;  ///< i32 [E + 1]
  TensorView source;   ///< i32 [T k]
  TensorView dbias;    ///< f32 or stored dtype [E, H], written; 16-bit only if it is not accumulated into
  bool accumulate = false;
};
Status expert_bias_backward_async(Backend& backend, Stream& stream, const ExpertBiasBackwardArgs& args);
void expert_bias_backward_host(const ExpertBiasBackwardArgs& args, ThreadPool& pool);

/// dweights[t, j] = <dy[t], bias[experts[t, j]]>, summed in f32 in an order that depends on H alone.
struct ExpertBiasBackwardWeightsArgs {
  TensorView dy;        ///< stored dtype [T, H]
  TensorView bias;      ///< stored dtype [E, H]
  TensorView experts;   ///< i32 [T, k]
  TensorView dweights;  ///< f32 [T, k], written
};
Status expert_bias_backward_weights_async(Backend& backend, Stream& stream,
                                          const ExpertBiasBackwardWeightsArgs& args);
void expert_bias_backward_weights_host(const ExpertBiasBackwardWeightsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

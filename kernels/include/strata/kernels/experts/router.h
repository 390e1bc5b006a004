#pragma once

#include <cstdint>

#include <strata/kernels/values/expert_rules.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

struct RouterTopKArgs {
  TensorView logits;   ///< f32 [T, E], E at most 1,024
  TensorView bias;     ///< f32 [E], added to scores for the choice alone; default view (rank 0): none
  TensorView experts;  ///< i32 [T, k], written: from the largest s + bias to the smallest
  TensorView weights;  ///< f32 [T, k], written
  RouterRule rule = {};
};
Status router_top_k_async(Backend& backend, Stream& stream, const RouterTopKArgs& args);
void router_top_k_host(const RouterTopKArgs& args, ThreadPool& pool);

/// The choice has no derivative; the weights have. An expert outside [0, E) is taken as E - 1.
struct RouterTopKBackwardArgs {
  TensorView logits;    ///< f32 [T, E]
  TensorView experts;   ///< i32 [T, k]
  TensorView dweights;  ///< f32 [T, k]
  TensorView dlogits;   ///< f32, bf16 or f16 [T, E], written
  RouterRule rule = {};
};
Status router_top_k_backward_async(Backend& backend, Stream& stream, const RouterTopKBackwardArgs& args);
void router_top_k_backward_host(const RouterTopKBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

#pragma once

#include <cstdint>

#include <strata/kernels/values/expert_rules.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// a[r] = weights[source[r]] gate(gate_up[r]), rounded once. The weight of an expert's result is applied
/// here, before its second matrix, so that what follows is a plain sum over a token's rows, and no result of
/// an expert is kept for the derivative of its weight.
struct ExpertGateForwardArgs {
  TensorView gate_up;  ///< stored dtype [R, gate.parts() F]: the gates of a row, then its ups if it has such
  TensorView weights;  ///< f32 [T, k]
  TensorView source;  ///< i32 [R], the choice of each row (rows.h); default view (rank 0): row r has choice r
  TensorView a;       ///< stored dtype [R, F], written
  ExpertGate gate = {};
};
Status expert_gate_forward_async(Backend& backend, Stream& stream, const ExpertGateForwardArgs& args);
void expert_gate_forward_host(const ExpertGateForwardArgs& args, ThreadPool& pool);

/// dweights[source[r]] = <gate(gate_up[r]), da[r]>, summed in f32 in an order that depends on F alone.
struct ExpertGateBackwardArgs {
  TensorView gate_up;   ///< stored dtype [R, gate.parts() F]
  TensorView weights;   ///< f32 [T, k]
  TensorView source;    ///< i32 [R], or none
  TensorView da;        ///< stored dtype [R, F]
  TensorView dgate_up;  ///< stored dtype [R, gate.parts() F], written; may be `gate_up`
  TensorView dweights;  ///< f32 [T, k], written
  ExpertGate gate = {};
};
Status expert_gate_backward_async(Backend& backend, Stream& stream, const ExpertGateBackwardArgs& args);
void expert_gate_backward_host(const ExpertGateBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The gates of the delta rule (delta_rule.h) from rows b | a of H heads, in f32:
///   beta = sigmoid(b), g = -exp(a_log) log(1 + exp(a + dt_bias))
/// g is written in f32, as the decays of many rows are multiplied.
struct DeltaGatesForwardArgs {
  TensorView ba;              ///< stored dtype [T, 2 H]
  TensorView a_log, dt_bias;  ///< f32 [H]
  TensorView g, beta;         ///< f32 [T, H], written
};
Status delta_gates_forward_async(Backend& backend, Stream& stream, const DeltaGatesForwardArgs& args);
void delta_gates_forward_host(const DeltaGatesForwardArgs& args, ThreadPool& pool);

/// The derivative; sums over rows are taken in blocks of rows that depend on T alone.
struct DeltaGatesBackwardArgs {
  TensorView ba, a_log, dt_bias;  ///< as in the forward
  TensorView dg, dbeta;           ///< f32 [T, H], or rank 0: zero
  TensorView dba;                 ///< stored dtype [T, 2 H], written; may be `ba`
  TensorView da_log, ddt_bias;    ///< f32 [H], written
  bool accumulate_da_log = false, accumulate_ddt_bias = false;
  BufferView workspace;  ///< delta_gates_backward_workspace_bytes(T, H), 4-aligned
};
std::size_t delta_gates_backward_workspace_bytes(std::int64_t rows, std::int64_t heads) noexcept;
Status delta_gates_backward_async(Backend& backend, Stream& stream, const DeltaGatesBackwardArgs& args);
void delta_gates_backward_host(const DeltaGatesBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

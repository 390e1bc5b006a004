#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// The linear layers of experts: each expert's rows times its own matrix. The weight has those of experts
// [first, first
// + B) of E, and each op writes the rows of these experts alone, so that the blocks of a layer's experts are
// computed one after the other into the same result.
//
// A row's bits depend on the row and its expert's matrix alone, not on the other rows: they are those of
// panels of 64 rows that begin at an expert's first row, the last of which is filled up. A sum over rows (dw)
// goes through the panels in order. On a GPU the workspaces are not used.

/// The shapes on which a workspace depends.
struct ExpertShape {
  std::int64_t rows = 0;      ///< R, of all E experts
  std::int64_t experts = 0;   ///< B
  std::int64_t n = 0, k = 0;  ///< a matrix is [N, K]
  DType dtype = DType::f32;   ///< stored dtype
};

/// y[r] = x[r] w[e]^T + b[e] for the rows r of each expert e.
struct ExpertLinearForwardArgs {
  TensorView x;        ///< stored dtype [R, K]
  TensorView w;        ///< stored dtype [B, N, K]
  TensorView b;        ///< stored dtype [B, N], added before y is rounded; default view (rank 0): none
  TensorView offsets;  ///< i32 [E + 1]
  TensorView y;        ///< stored dtype [R, N]
  std::int64_t first = 0;
  BufferView workspace = {};  ///< expert_linear_forward_workspace_bytes(), 256-aligned
};
std::size_t expert_linear_forward_workspace_bytes(const ExpertShape& shape) noexcept;
Status expert_linear_forward_async(Backend& backend, Stream& stream, const ExpertLinearForwardArgs& args);
void expert_linear_forward_host(const ExpertLinearForwardArgs& args, ThreadPool& pool);

/// dx[r] = dy[r] w[e].
struct ExpertLinearBackwardInputArgs {
  TensorView dy;       ///< stored dtype [R, N]
  TensorView w;        ///< stored dtype [B, N, K]
  TensorView offsets;  ///< i32 [E + 1]
  TensorView dx;       ///< stored dtype [R, K]
  std::int64_t first = 0;
  BufferView workspace = {};  ///< expert_linear_backward_input_workspace_bytes(), 256-aligned
};
std::size_t expert_linear_backward_input_workspace_bytes(const ExpertShape& shape) noexcept;
Status expert_linear_backward_input_async(Backend& backend, Stream& stream,
                                          const ExpertLinearBackwardInputArgs& args);
void expert_linear_backward_input_host(const ExpertLinearBackwardInputArgs& args, ThreadPool& pool);

/// dw[e] = sum of dy[r]^T x[r] over the rows of e, or dw[e] += that sum. An expert without rows has zeros.
struct ExpertLinearBackwardWeightArgs {
  TensorView dy;       ///< stored dtype [R, N]
  TensorView x;        ///< stored dtype [R, K]
  TensorView offsets;  ///< i32 [E + 1]
  TensorView dw;       ///< f32 or stored dtype [B, N, K], written; 16-bit only if it is not accumulated into
  std::int64_t first = 0;
  bool accumulate = false;
};
Status expert_linear_backward_weight_async(Backend& backend, Stream& stream,
                                           const ExpertLinearBackwardWeightArgs& args);
void expert_linear_backward_weight_host(const ExpertLinearBackwardWeightArgs& args, ThreadPool& pool);

/// db[e] = sum of dy[r] over the rows of e, or db[e] += that sum.
struct ExpertLinearBackwardBiasArgs {
  TensorView dy;       ///< stored dtype [R, N]
  TensorView offsets;  ///< i32 [E + 1]
  TensorView db;       ///< f32 or stored dtype [B, N], written; as dw
  std::int64_t first = 0;
  bool accumulate = false;
};
Status expert_linear_backward_bias_async(Backend& backend, Stream& stream,
                                         const ExpertLinearBackwardBiasArgs& args);
void expert_linear_backward_bias_host(const ExpertLinearBackwardBiasArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// On the host each product is cut into tiles of its result by a grid that depends on the shapes alone, each
// tile over the whole inner extent, so bits depend on shapes and the host GEMM's instruction set.

/// y = x w^T + b.
struct LinearForwardArgs {
  TensorView x;  ///< f32 [..., K], T rows
  TensorView w;  ///< f32 [N, K]
  TensorView b;  ///< f32 [N]; a default view (rank 0) for none
  TensorView y;  ///< f32 [..., N], T rows, written
};
Status linear_forward_async(Backend& backend, Stream& stream, const LinearForwardArgs& args);
void linear_forward_host(const LinearForwardArgs& args, ThreadPool& pool);

/// dx = dy w, or dx += dy w.
struct LinearBackwardInputArgs {
  TensorView dy;  ///< f32 [..., N], T rows
  TensorView w;   ///< f32 [N, K]
  TensorView dx;  ///< f32 [..., K], T rows, written
  bool accumulate = false;
};
Status linear_backward_input_async(Backend& backend, Stream& stream, const LinearBackwardInputArgs& args);
void linear_backward_input_host(const LinearBackwardInputArgs& args, ThreadPool& pool);

/// dw = dy^T x, or dw += dy^T x.
struct LinearBackwardWeightArgs {
  TensorView dy;  ///< f32 [..., N], T rows
  TensorView x;   ///< f32 [..., K], T rows
  TensorView dw;  ///< f32 [N, K], written
  bool accumulate = false;
};
Status linear_backward_weight_async(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& args);
void linear_backward_weight_host(const LinearBackwardWeightArgs& args, ThreadPool& pool);

/// db = the sum of dy's rows, or db += it; in fixed blocks of rows.
struct LinearBackwardBiasArgs {
  TensorView dy;  ///< f32 [..., N], T rows
  TensorView db;  ///< f32 [N], written
  bool accumulate = false;
  BufferView workspace;  ///< linear_backward_bias_workspace_bytes(T, N), 4-aligned
};
std::size_t linear_backward_bias_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept;
Status linear_backward_bias_async(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& args);
void linear_backward_bias_host(const LinearBackwardBiasArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

#pragma once

#include <cstddef>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// GEMMs with a quantized matrix W [N, K] of a frozen base (QLoRA; Dettmers et al. 2023, arXiv 2305.14314).
// Panels of W are dequantized to the dtype of the other operand and multiplied one after the other. A panel
// covers the whole inner extent, so bits depend on the same as those of linear.h, and on the panels' sizes,
// which depend only on the matrix.

/// Bytes of the workspace of both ops: the largest panel in `dtype`, at most 64 MiB unless one row or column
/// has more.
std::size_t linear_quantized_workspace_bytes(const QuantizedMatrix& matrix, DType dtype) noexcept;

/// y = x W^T + b.
struct LinearQuantizedArgs {
  TensorView x;                    ///< stored dtype (embedding.h) [..., K], T rows
  TensorView w;                    ///< u8 [matrix.bytes()], 64-aligned
  TensorView b;                    ///< stored dtype [N], added before y is rounded; default view: none
  TensorView y;                    ///< stored dtype [..., N], T rows, written
  BufferView panel;                ///< linear_quantized_workspace_bytes(), 256-aligned
  BufferView gemm_workspace = {};  ///< gemm_workspace_bytes(T, N), 256-aligned, or none; unused on the host
  QuantizedMatrix matrix;
};
Status linear_quantized_async(Backend& backend, Stream& stream, const LinearQuantizedArgs& args);
void linear_quantized_host(const LinearQuantizedArgs& args, ThreadPool& pool);

/// dx = dy W, or dx += dy W, rounded once if dx is 16-bit.
struct LinearQuantizedBackwardInputArgs {
  TensorView dy;  ///< stored dtype [..., N], T rows
  TensorView w;
  TensorView dx;  ///< stored dtype [..., K], T rows, written
  bool accumulate = false;
  BufferView panel;
  BufferView gemm_workspace = {};  ///< for [T, K]
  QuantizedMatrix matrix;
};
Status linear_quantized_backward_input_async(Backend& backend, Stream& stream,
                                             const LinearQuantizedBackwardInputArgs& args);
void linear_quantized_backward_input_host(const LinearQuantizedBackwardInputArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// On the host each GEMM is split into tiles of its result by a grid that depends only on the shapes. Each
// tile covers the whole inner extent, so bits depend on the shapes and the host GEMM's instruction set (for
// bf16 see bf16_gemm.h). "Stored dtype" is defined in embedding.h.

/// Workspace of a GEMM with an [m, n] result on a GPU: space for partial results of a long inner extent
/// (split-K), at most 32 MiB. The size depends only on the shape and not on free memory, because it
/// influences the choice of the algorithm and so the bits. A GEMM without workspace is also correct, but may
/// be slower.
std::size_t gemm_workspace_bytes(std::int64_t m, std::int64_t n) noexcept;

/// y = x w^T + b.
struct LinearForwardArgs {
  TensorView x;               ///< stored dtype [..., K], T rows
  TensorView w;               ///< stored dtype [N, K]
  TensorView b;               ///< stored dtype [N], added before y is rounded; default view (rank 0): none
  TensorView y;               ///< stored dtype or f32 [..., N], T rows, written
  BufferView workspace = {};  ///< gemm_workspace_bytes(T, N), 256-aligned, or none; unused on the host
};
Status linear_forward_async(Backend& backend, Stream& stream, const LinearForwardArgs& args);
void linear_forward_host(const LinearForwardArgs& args, ThreadPool& pool);
/// Whether a row of any GEMM on the host has the same bits among any number of other rows: with oneDNN, on a
/// CPU with AVX2.
bool host_rows_are_exact() noexcept;

/// dx = dy w, or dx += dy w, rounded once if dx is 16-bit.
struct LinearBackwardInputArgs {
  TensorView dy;  ///< stored dtype [..., N], T rows
  TensorView w;   ///< stored dtype [N, K]
  TensorView dx;  ///< stored dtype [..., K], T rows, written
  bool accumulate = false;
  BufferView workspace = {};  ///< as in LinearForwardArgs, for [T, K]
};
Status linear_backward_input_async(Backend& backend, Stream& stream, const LinearBackwardInputArgs& args);
void linear_backward_input_host(const LinearBackwardInputArgs& args, ThreadPool& pool);

/// dw = dy^T x, or dw += dy^T x.
struct LinearBackwardWeightArgs {
  TensorView dy;  ///< stored dtype [..., N], T rows
  TensorView x;   ///< stored dtype [..., K], T rows
  TensorView dw;  ///< f32 or stored dtype [N, K], written
  bool accumulate = false;
  BufferView workspace = {};  ///< as in LinearForwardArgs, for [N, K]
};
Status linear_backward_weight_async(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& args);
void linear_backward_weight_host(const LinearBackwardWeightArgs& args, ThreadPool& pool);

/// db = sum of the rows of dy, or db += that sum, computed over fixed blocks of rows.
struct LinearBackwardBiasArgs {
  TensorView dy;  ///< stored dtype [..., N], T rows
  TensorView db;  ///< f32 or stored dtype [N], written
  bool accumulate = false;
  BufferView workspace;  ///< linear_backward_bias_workspace_bytes(T, N), 4-aligned
};
std::size_t linear_backward_bias_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept;
Status linear_backward_bias_async(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& args);
void linear_backward_bias_host(const LinearBackwardBiasArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

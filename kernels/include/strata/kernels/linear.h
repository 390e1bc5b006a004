#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// On the host each product is cut into tiles of its result by a grid that depends on the shapes alone, each
// tile over the whole inner extent, so bits depend on shapes and the host GEMM's instruction set (bf16_gemm.h
// for what is kept in bf16). "kept" is the storage of embedding.h.

/// Of a GPU's product with an [m, n] result: room for some partial results of a long inner extent, at most 32
/// MiB. One shape has one size, whatever memory there is, because it has a say in the algorithm, and so in
/// bits. A product without it is right, too, and may be slower.
std::size_t gemm_workspace_bytes(std::int64_t m, std::int64_t n) noexcept;

/// y = x w^T + b.
struct LinearForwardArgs {
  TensorView x;               ///< kept [..., K], T rows
  TensorView w;               ///< kept [N, K]
  TensorView b;               ///< kept [N], added before y is rounded; a default view (rank 0) for none
  TensorView y;               ///< kept [..., N], T rows, written
  BufferView workspace = {};  ///< gemm_workspace_bytes(T, N), 256-aligned, or none; the host reads none
};
Status linear_forward_async(Backend& backend, Stream& stream, const LinearForwardArgs& args);
void linear_forward_host(const LinearForwardArgs& args, ThreadPool& pool);

/// dx = dy w, or dx += dy w, rounded once where it is kept in 16 bits.
struct LinearBackwardInputArgs {
  TensorView dy;  ///< kept [..., N], T rows
  TensorView w;   ///< kept [N, K]
  TensorView dx;  ///< kept [..., K], T rows, written
  bool accumulate = false;
  BufferView workspace = {};  ///< as in LinearForwardArgs, for [T, K]
};
Status linear_backward_input_async(Backend& backend, Stream& stream, const LinearBackwardInputArgs& args);
void linear_backward_input_host(const LinearBackwardInputArgs& args, ThreadPool& pool);

/// dw = dy^T x, or dw += dy^T x.
struct LinearBackwardWeightArgs {
  TensorView dy;  ///< kept [..., N], T rows
  TensorView x;   ///< kept [..., K], T rows
  TensorView dw;  ///< f32 or kept [N, K], written
  bool accumulate = false;
  BufferView workspace = {};  ///< as in LinearForwardArgs, for [N, K]
};
Status linear_backward_weight_async(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& args);
void linear_backward_weight_host(const LinearBackwardWeightArgs& args, ThreadPool& pool);

/// db = the sum of dy's rows, or db += it; in fixed blocks of rows.
struct LinearBackwardBiasArgs {
  TensorView dy;  ///< kept [..., N], T rows
  TensorView db;  ///< f32 or kept [N], written
  bool accumulate = false;
  BufferView workspace;  ///< linear_backward_bias_workspace_bytes(T, N), 4-aligned
};
std::size_t linear_backward_bias_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept;
Status linear_backward_bias_async(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& args);
void linear_backward_bias_host(const LinearBackwardBiasArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

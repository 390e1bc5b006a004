#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <strata/kernels/lora_parts.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Weight-decomposed low-rank adapters (DoRA; Liu et al. 2024, arXiv 2402.09353): row i of an adapted part of
// a matrix W [N, K] is m_i (w_i + s b_i A) / ||w_i + s b_i A||. Norms are sums of
// ||w_i||^2 + 2 s (w_i A^T) b_i^T + s^2 b_i (A A^T) b_i^T, so that B A never exists. The GEMMs with A sum in
// f32, the rest in f64; where the terms cancel, a row is summed element by element in f64.

/// norm[i] = ||w_i + s b_i A|| for the rows of each part, one part after the other. Bits depend on the same
/// as those of linear.h and, of a quantized matrix, linear_quantized.h; where b is zero, they are those of
/// row_norms().
struct DoraNormArgs {
  TensorView w;          ///< stored dtype (embedding.h) [N, K]; quantized: u8 [matrix.bytes()], 64-aligned
  TensorView a;          ///< stored dtype [sum of ranks, K]
  TensorView b;          ///< stored dtype, by part [rows, rank]
  TensorView norm;       ///< f32 [sum of rows], written
  BufferView workspace;  ///< dora_norm_workspace_bytes(), 256-aligned
  LoraParts parts;
  float scale = 1;  ///< s
  QuantizedMatrix matrix = {};
};
Status dora_norm_async(Backend& backend, Stream& stream, const DoraNormArgs& args);
void dora_norm_host(const DoraNormArgs& args, ThreadPool& pool);
/// `columns`: K; `dtype`: of a.
std::size_t dora_norm_workspace_bytes(const LoraParts& parts, std::int64_t columns,
                                      const QuantizedMatrix& matrix, DType dtype) noexcept;

/// norms[i] = ||row i|| of rows of `columns` values, which are rounded to `dtype` first.
void row_norms(std::span<const float> values, std::int64_t columns, DType dtype, std::span<float> norms,
               ThreadPool& pool);

/// y[:, c] = x[:, c] m[i] / norm[i] + bias[c] for column c, the i-th of the parts' rows, and
/// y[:, c] = x[:, c] + bias[c] elsewhere. Where norm[i] is zero, so is x[:, c] m[i] / norm[i]. Bits do not
/// depend on the instruction set.
struct ScaleColumnsArgs {
  TensorView x;     ///< stored dtype [..., N], T rows
  TensorView m;     ///< f32 [sum of rows]
  TensorView norm;  ///< f32 [sum of rows]
  TensorView bias;  ///< stored dtype [N]; default view: none
  TensorView y;     ///< as x, written; may be x
  LoraParts parts;
};
Status scale_columns_async(Backend& backend, Stream& stream, const ScaleColumnsArgs& args);
void scale_columns_host(const ScaleColumnsArgs& args, ThreadPool& pool);

/// dm[i] = sum of dy[:, c] x[:, c], divided by norm[i] (0 if that is zero), or dm += that.
struct ScaleColumnsBackwardWeightArgs {
  TensorView dy;         ///< stored dtype [..., N], T rows
  TensorView x;          ///< as dy
  TensorView norm;       ///< f32 [sum of rows]
  TensorView dm;         ///< f32 [sum of rows], written
  BufferView workspace;  ///< scale_columns_backward_workspace_bytes(), 256-aligned
  LoraParts parts;
  bool accumulate = false;
};
Status scale_columns_backward_weight_async(Backend& backend, Stream& stream,
                                           const ScaleColumnsBackwardWeightArgs& args);
void scale_columns_backward_weight_host(const ScaleColumnsBackwardWeightArgs& args, ThreadPool& pool);
/// `columns`: the sum of the parts' rows.
std::size_t scale_columns_backward_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept;

}  // namespace strata::kernels

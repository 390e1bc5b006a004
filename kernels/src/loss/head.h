#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/values/head_blocks.h>

#include "gemm/tensor_gemm.h"

/// A model's head, whose logits exist for one block of rows at a time: the blocks and their GEMMs. Used by
/// the host and by CUDA.
namespace strata::kernels::detail {

/// The operands of logits = x w^T, and the memory for a block of them.
struct Head {
  TensorView x, w;
  BufferView workspace, gemm_workspace;
  HeadBlocks blocks;

  std::int64_t rows() const noexcept { return dispatch::row_count(x); }
  std::int64_t vocab() const noexcept { return w.shape.dim(0); }
  std::int64_t block_rows() const noexcept { return head_block_rows(rows(), vocab(), blocks); }
  std::int64_t gradient_rows() const noexcept { return head_gradient_rows(rows(), vocab(), x.dtype, blocks); }
};
template <class Args>
Head head_of(const Args& a) {
  return {a.x, a.w, a.workspace, a.gemm_workspace, a.blocks};
}

/// Bytes of a block's f32 logits, rounded up to 64 so that the memory after them is aligned.
constexpr std::size_t logits_bytes(std::int64_t rows, std::int64_t vocab) noexcept {
  return (static_cast<std::size_t>(rows * vocab) * sizeof(float) + 63) / 64 * 64;
}

/// Rows [first, first + n) of the gradient with respect to the logits, in the dtype of x.
struct GradientRows {
  std::int64_t first, n;
  std::byte* dlogits;
};
/// Rows [first, first + n) of the logits, in f32, and where their gradient is stored in the dtype of x: in
/// place if that is f32, otherwise behind that of the blocks before it whose GEMMs are the same.
struct LogitsBlock {
  std::int64_t first, n, vocab;
  float* logits;
  std::byte* dlogits;
  /// Not empty if the block is the last one of its GEMMs of dx and dw: their rows.
  GradientRows gradients;
};
inline std::int64_t n_logits_blocks(const Head& head) {
  const std::int64_t rows = head.rows();
  return rows == 0 ? 0 : dispatch::ceil_div(rows, head.block_rows());
}
inline LogitsBlock logits_block(const Head& head, std::int64_t i) {
  const std::int64_t rows = head.rows(), vocab = head.vocab(), step = head.block_rows(),
                     together = head.gradient_rows(), first = i * step, n = std::min(step, rows - first),
                     before = first % together;
  std::byte* const gradients =
      head.workspace.data + (head.x.dtype == DType::f32 ? 0 : logits_bytes(step, vocab));
  LogitsBlock block = {first,
                       n,
                       vocab,
                       reinterpret_cast<float*>(head.workspace.data),
                       gradients + static_cast<std::size_t>(before * vocab) * size_of(head.x.dtype),
                       {}};
  if (before + n == together || first + n == rows) block.gradients = {first - before, before + n, gradients};
  return block;
}

template <class Rows>
TensorView block_of_rows(const TensorView& view, const Rows& rows) {
  const std::int64_t length = dispatch::row_length(view);
  return {view.data + static_cast<std::size_t>(rows.first * length) * size_of(view.dtype),
          {rows.n, length},
          view.dtype};
}
inline Gemm logits_gemm(const Head& head, const LogitsBlock& block) {
  const TensorView y{reinterpret_cast<std::byte*>(block.logits), {block.n, block.vocab}, DType::f32};
  return gemm_of_rows(block_of_rows(head.x, block), head.w, y);
}
/// The GEMM of dx.
inline Gemm head_input_gemm(const Head& head, const GradientRows& rows, const TensorView& dx) {
  const TensorView dy{rows.dlogits, {rows.n, head.vocab()}, head.x.dtype};
  return gemm_of_matrices(dy, head.w, block_of_rows(dx, rows));
}
/// The GEMM of dw, which adds to the sum of the rows before it.
inline Gemm head_weight_gemm(const Head& head, const GradientRows& rows, const TensorView& dw,
                             bool accumulate) {
  const TensorView dy{rows.dlogits, {rows.n, head.vocab()}, head.x.dtype};
  return gemm_of_columns(dy, block_of_rows(head.x, rows), dw, accumulate || rows.first > 0);
}

}  // namespace strata::kernels::detail

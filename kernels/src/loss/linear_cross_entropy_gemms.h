#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "gemm/tensor_gemm.h"

/// The GEMMs of a block of `n` rows from row `first` on, used by the host and by CUDA.
namespace strata::kernels::detail {

inline TensorView block_of_rows(const TensorView& view, std::int64_t first, std::int64_t n) {
  const std::int64_t length = dispatch::row_length(view);
  return {
      view.data + static_cast<std::size_t>(first * length) * size_of(view.dtype), {n, length}, view.dtype};
}
inline Gemm logits_gemm(const LinearCrossEntropyArgs& a, std::int64_t first, std::int64_t n, float* logits) {
  const TensorView y{reinterpret_cast<std::byte*>(logits), {n, a.w.shape.dim(0)}, DType::f32};
  return gemm_of_rows(block_of_rows(a.x, first, n), a.w, y);
}
/// The GEMM of dx. `dlogits` have the dtype of x.
inline Gemm head_input_gemm(const LinearCrossEntropyBackwardArgs& a, std::int64_t first, std::int64_t n,
                            std::byte* dlogits) {
  const TensorView dy{dlogits, {n, a.forward.w.shape.dim(0)}, a.forward.x.dtype};
  return gemm_of_matrices(dy, a.forward.w, block_of_rows(a.dx, first, n));
}
/// The GEMM of dw, which adds to the sum of the blocks before it.
inline Gemm head_weight_gemm(const LinearCrossEntropyBackwardArgs& a, std::int64_t first, std::int64_t n,
                             std::byte* dlogits) {
  const TensorView dy{dlogits, {n, a.forward.w.shape.dim(0)}, a.forward.x.dtype};
  return gemm_of_columns(dy, block_of_rows(a.forward.x, first, n), a.dw, a.accumulate_dw || first > 0);
}

}  // namespace strata::kernels::detail

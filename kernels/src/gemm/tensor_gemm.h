#pragma once

#include <strata/ops/rows.h>
#include <strata/runtime/tensor_view.h>

#include "gemm/gemm.h"

/// The GEMMs of whole tensors, used by the host and by CUDA. The rows of an operand are all its dimensions
/// but the last.
namespace strata::kernels::detail {

/// C = A B^T for A [M, K] and B [N, K].
inline Gemm gemm_of_rows(const TensorView& a, const TensorView& b, const TensorView& c) {
  const std::int64_t k = ops::row_length(a), n = ops::row_count(b);
  return {.trans_b = true,
          .m = ops::row_count(a),
          .n = n,
          .k = k,
          .a = a.data,
          .lda = k,
          .b = b.data,
          .ldb = k,
          .c = c.data,
          .ldc = n,
          .dtype = a.dtype,
          .c_dtype = c.dtype};
}
/// C (+)= A B for A [M, K] and B [K, N].
inline Gemm gemm_of_matrices(const TensorView& a, const TensorView& b, const TensorView& c,
                             bool accumulate = false) {
  const std::int64_t k = ops::row_length(a), n = ops::row_length(b);
  return {.m = ops::row_count(a),
          .n = n,
          .k = k,
          .a = a.data,
          .lda = k,
          .b = b.data,
          .ldb = n,
          .c = c.data,
          .ldc = n,
          .accumulate = accumulate,
          .dtype = a.dtype,
          .c_dtype = c.dtype};
}
/// C (+)= A^T B for A [K, M] and B [K, N].
inline Gemm gemm_of_columns(const TensorView& a, const TensorView& b, const TensorView& c,
                            bool accumulate = false) {
  const std::int64_t m = ops::row_length(a), n = ops::row_length(b);
  return {.trans_a = true,
          .m = m,
          .n = n,
          .k = ops::row_count(a),
          .a = a.data,
          .lda = m,
          .b = b.data,
          .ldb = n,
          .c = c.data,
          .ldc = n,
          .accumulate = accumulate,
          .dtype = a.dtype,
          .c_dtype = c.dtype};
}

}  // namespace strata::kernels::detail

#pragma once

#include <strata/dispatch/rows.h>
#include <strata/runtime/tensor_view.h>

#include "gemm/gemm.h"

/// The GEMMs of whole tensors, used by the host and by CUDA. The rows of an operand are all its dimensions
/// but the last.
namespace strata::kernels::detail {

/// C (+)= op(A) op(B), where op transposes if its flag is set.
inline Gemm tensor_gemm(bool trans_a, const TensorView& a, bool trans_b, const TensorView& b,
                        const TensorView& c, bool accumulate) {
  const std::int64_t a_rows = dispatch::row_count(a), a_columns = dispatch::row_length(a);
  const std::int64_t b_rows = dispatch::row_count(b), b_columns = dispatch::row_length(b);
  const std::int64_t n = trans_b ? b_rows : b_columns;
  return {.trans_a = trans_a,
          .trans_b = trans_b,
          .m = trans_a ? a_columns : a_rows,
          .n = n,
          .k = trans_a ? a_rows : a_columns,
          .a = a.data,
          .lda = a_columns,
          .b = b.data,
          .ldb = b_columns,
          .c = c.data,
          .ldc = n,
          .accumulate = accumulate,
          .dtype = a.dtype,
          .c_dtype = c.dtype};
}
/// C = A B^T for A [M, K] and B [N, K].
inline Gemm gemm_of_rows(const TensorView& a, const TensorView& b, const TensorView& c) {
  return tensor_gemm(false, a, true, b, c, false);
}
/// C (+)= A B for A [M, K] and B [K, N].
inline Gemm gemm_of_matrices(const TensorView& a, const TensorView& b, const TensorView& c,
                             bool accumulate = false) {
  return tensor_gemm(false, a, false, b, c, accumulate);
}
/// C (+)= A^T B for A [K, M] and B [K, N].
inline Gemm gemm_of_columns(const TensorView& a, const TensorView& b, const TensorView& c,
                            bool accumulate = false) {
  return tensor_gemm(true, a, false, b, c, accumulate);
}

}  // namespace strata::kernels::detail

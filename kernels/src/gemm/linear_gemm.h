#pragma once

#include <strata/kernels/linear.h>

#include "gemm/gemm.h"
#include "rows.h"

/// The GEMMs of a linear layer, used by the host and by CUDA.
namespace strata::kernels::detail {

inline Gemm forward_gemm(const LinearForwardArgs& a) {
  const std::int64_t n = a.w.shape.dim(0);
  const std::int64_t k = a.w.shape.dim(1);
  return {.trans_b = true,
          .m = row_count(a.x),
          .n = n,
          .k = k,
          .a = a.x.data,
          .lda = k,
          .b = a.w.data,
          .ldb = k,
          .c = a.y.data,
          .ldc = n,
          .dtype = a.x.dtype,
          .c_dtype = a.y.dtype};
}
inline Gemm input_gemm(const LinearBackwardInputArgs& a) {
  const std::int64_t n = a.w.shape.dim(0);
  const std::int64_t k = a.w.shape.dim(1);
  return {.m = row_count(a.dy),
          .n = k,
          .k = n,
          .a = a.dy.data,
          .lda = n,
          .b = a.w.data,
          .ldb = k,
          .c = a.dx.data,
          .ldc = k,
          .accumulate = a.accumulate,
          .dtype = a.dy.dtype,
          .c_dtype = a.dx.dtype};
}
inline Gemm weight_gemm(const LinearBackwardWeightArgs& a) {
  const std::int64_t n = a.dw.shape.dim(0);
  const std::int64_t k = a.dw.shape.dim(1);
  return {.trans_a = true,
          .m = n,
          .n = k,
          .k = row_count(a.dy),
          .a = a.dy.data,
          .lda = n,
          .b = a.x.data,
          .ldb = k,
          .c = a.dw.data,
          .ldc = k,
          .accumulate = a.accumulate,
          .dtype = a.dy.dtype,
          .c_dtype = a.dw.dtype};
}

}  // namespace strata::kernels::detail

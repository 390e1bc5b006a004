#include <strata/kernels/fp8.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "cuda_ops.h"
#include "rows.h"

namespace strata::kernels::cuda {

// Both operands are stored as [.., K] (K-major), the only layout of 8-bit operands that Hopper multiplies.
Status fp8_gemm(Backend&, Stream& stream, const Fp8GemmArgs& a) {
  const std::int64_t m = detail::row_count(a.a), k = detail::row_length(a.a), n = detail::row_count(a.b);
  const detail::Gemm gemm{.trans_b = true,
                          .m = m,
                          .n = n,
                          .k = k,
                          .a = a.a.data,
                          .lda = k,
                          .b = a.b.data,
                          .ldb = k,
                          .c = a.c.data,
                          .ldc = n,
                          .accumulate = a.accumulate,
                          .dtype = a.a.dtype,
                          .c_dtype = a.c.dtype};
  const detail::Fp8GemmScales scales{a.b.dtype, a.a_scale_inv.as<float>(), a.b_scale_inv.as<float>()};
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::device_gemm(gemm, detail::is_present(a.bias) ? a.bias.data : nullptr, a.workspace, queue,
                             &scales);
}

}  // namespace strata::kernels::cuda

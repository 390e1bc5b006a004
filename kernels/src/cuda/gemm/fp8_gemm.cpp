#include <strata/dispatch/rows.h>
#include <strata/kernels/fp8.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "gemm/tensor_gemm.h"

namespace strata::kernels::cuda {

// Both operands are stored as [.., K] (K-major), the only layout of 8-bit operands that Hopper multiplies.
Status fp8_gemm(Backend&, Stream& stream, const Fp8GemmArgs& a) {
  detail::Gemm gemm = detail::gemm_of_rows(a.a, a.b, a.c);
  gemm.accumulate = a.accumulate;
  const detail::Fp8GemmScales scales{a.b.dtype, a.a_scale_inv.as<float>(), a.b_scale_inv.as<float>()};
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::device_gemm(gemm, dispatch::is_present(a.bias) ? a.bias.data : nullptr, a.workspace, queue,
                             &scales);
}

}  // namespace strata::kernels::cuda

#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

#include "gemm/gemm.h"

namespace strata::kernels::detail {

/// For a GEMM of 8-bit operands, where `Gemm::dtype` is the dtype of A: the dtype of B, and the device
/// addresses of the f32 inverse scales by which A and B are multiplied.
struct Fp8GemmScales {
  DType b_dtype;
  const float *a_scale_inv, *b_scale_inv;
};

/// Runs `gemm` by cuBLASLt and adds `row_bias` (n values of C's dtype, or null) before C is rounded. Sums are
/// f32: there is no TF32, and split-K parts stay f32 until they are added. The algorithm depends on the
/// shape, the dtypes, the alignment of the operands and the size of the workspace (0: none), never on a
/// budget; the bits depend only on these, on the GPU and on cuBLASLt's version. A plan is made at its first
/// use and kept for the life of the process; cuBLASLt is loaded at its first use. Errors: `unsupported` if
/// cuBLASLt is not found, `internal` with its status if it refuses.
Status device_gemm(const Gemm& gemm, const void* row_bias, BufferView workspace, cudaStream_t queue,
                   const Fp8GemmScales* fp8 = nullptr);

}  // namespace strata::kernels::detail

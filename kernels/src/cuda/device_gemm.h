#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/backend.h>
#include <strata/runtime/status.h>

#include "gemm.h"

namespace strata::kernels::detail {

/// Of a product of eight-bit operands, `Gemm::dtype` being that of A: the dtype of B, and where on the device
/// lie the f32 numbers by which what A and B stand for is multiplied.
struct Fp8GemmScales {
  DType b_dtype;
  const float *a_scale_inv, *b_scale_inv;
};

/// The product of `gemm`, with `row_bias` (n values of C's dtype, or null) added before C is rounded, by
/// cuBLASLt: sums in f32 (no TF32, and parts of a sum stay f32 until they are added), by an algorithm that
/// shape, dtypes, the alignment of the operands and the size of the workspace (0: none) choose, never a
/// budget; its bits depend on these, on the GPU and on cuBLASLt's version alone. What a product needs is made
/// the first time and kept for the life of the process. cuBLASLt is loaded when first used. Errors:
/// `unsupported` where it is not found, `internal` with its code where it refuses.
Status device_gemm(const Gemm& gemm, const void* row_bias, BufferView workspace, cudaStream_t queue,
                   const Fp8GemmScales* fp8 = nullptr);

}  // namespace strata::kernels::detail

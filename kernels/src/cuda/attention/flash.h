#pragma once

#include <cuda_runtime_api.h>

#include <strata/kernels/attention.h>

#include "cuda/attention/alibi_slopes.h"

namespace strata::kernels::detail {

/// Whether the FlashAttention kernels (flash_tiles.h) support heads of `d` values of `dtype` on the current
/// device, with wgmma if `by` requests it and the device has it. Operands must be 16-byte aligned.
bool supports_flash_attention(DType dtype, std::int64_t d, AttentionBackend by);
Status flash_attention_forward(const AttentionForwardArgs& args, const AlibiSlopes& slopes,
                               cudaStream_t queue);
Status flash_attention_backward(const AttentionBackwardArgs& args, const AlibiSlopes& slopes,
                                cudaStream_t queue);

}  // namespace strata::kernels::detail

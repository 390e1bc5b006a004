#pragma once

#include <cuda_runtime_api.h>

#include <strata/kernels/attention.h>

#include "cuda/alibi_slopes.h"

namespace strata::kernels::detail {

/// Whether heads of `d` values of `dtype` are the tensor cores' own (flash_tiles.h) on the current device, by
/// warpgroups if that is asked for and there; operands begin at multiples of 16 bytes.
bool supports_flash_attention(DType dtype, std::int64_t d, AttentionBackend by);
Status flash_attention_forward(const AttentionForwardArgs& args, const AlibiSlopes& slopes,
                               cudaStream_t queue);
Status flash_attention_backward(const AttentionBackwardArgs& args, const AlibiSlopes& slopes,
                                cudaStream_t queue);

}  // namespace strata::kernels::detail

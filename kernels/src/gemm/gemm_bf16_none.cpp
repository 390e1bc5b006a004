#include <strata/runtime/assert.h>

#include "gemm/gemm_16bit.h"

// For builds that use the reference GEMM (gemm_reference.cpp).
namespace strata::kernels::detail {

Bf16Gemm native_bf16_gemm() noexcept { return Bf16Gemm::widened; }
void gemm_native_bf16(const Gemm&) noexcept { STRATA_ASSERT(false, "no bf16 GEMM in this build"); }

}  // namespace strata::kernels::detail

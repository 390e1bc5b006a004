#include "gemm/native_bf16.h"

#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/assert.h>

// For builds that use the reference GEMM (gemm_reference.cpp).
namespace strata::kernels::detail {

Bf16Gemm detect_native_bf16_gemm() noexcept { return Bf16Gemm::widened; }
void gemm_native_bf16(const Gemm&) noexcept { STRATA_ASSERT(false, "no bf16 GEMM in this build"); }

}  // namespace strata::kernels::detail

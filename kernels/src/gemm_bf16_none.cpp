#include <strata/runtime/assert.h>

#include "gemm_stored.h"

// For builds whose GEMM is the reference loop.
namespace strata::kernels::detail {

Bf16Gemm native_bf16_gemm() noexcept { return Bf16Gemm::widened; }
void native_bf16_product(const Gemm&) noexcept { STRATA_ASSERT(false, "no bf16 products in this build"); }

}  // namespace strata::kernels::detail

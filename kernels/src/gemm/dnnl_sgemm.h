#pragma once

#include "gemm/gemm.h"

namespace strata::kernels::detail {

/// One call of dnnl_sgemm. Fails only by a programming error, which aborts.
void call_dnnl_sgemm(const Gemm& gemm) noexcept;

}  // namespace strata::kernels::detail

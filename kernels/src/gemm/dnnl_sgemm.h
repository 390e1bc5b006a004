#pragma once

#include "gemm/gemm.h"

namespace strata::kernels::detail {

/// One call of dnnl_sgemm. Fails only by a programming error, which aborts.
void call_dnnl_sgemm(const Gemm& gemm) noexcept;

/// Whether oneDNN uses its kernels for AVX2 on this machine.
bool dnnl_uses_avx2() noexcept;

/// Computes a GEMM with oneDNN's kernels for AVX2, such that a row of C has the same bits whichever other
/// rows are computed with it, unless A is transposed.
void gemm_on_avx2(const Gemm& gemm) noexcept;

}  // namespace strata::kernels::detail

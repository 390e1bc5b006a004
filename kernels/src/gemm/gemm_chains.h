#pragma once

#include "few_rows_table.h"
#include "gemm/gemm.h"

// Note [chains]: an element of C has the same bits whichever other elements are computed with it, in a GEMM
// of any number of rows and columns, and on AVX2 as on AVX-512. It is a sum over k of chains of kChain: each
// chain is one fused multiply-add after the other in ascending k, begun with zero, and the chains' sums are
// added in order, to C itself if the GEMM accumulates. oneDNN's sgemm computes such a chain if k <= kChain
// and if the shape is none of those that it sums in another way, which few_rows_table() computes instead.
// Which shapes these are was found by comparing bits with oneDNN 2.7 (2,700 shapes on each instruction set);
// GemmChainsTest asks for it again.
namespace strata::kernels::detail {

/// Computes a GEMM of f32 operands by Note [chains]; `on_avx2`: oneDNN uses its kernels for AVX2, not those
/// for AVX-512.
void gemm_by_chains(const Gemm& gemm, bool on_avx2);

/// Whether a GEMM has so few rows that few_rows_table() computes it, at the rate at which memory gives B.
inline bool has_few_rows(const Gemm& g) noexcept { return !g.trans_a && g.trans_b && g.m < 16; }

/// Computes a GEMM with few_rows_table(). A must not be transposed, and is f32; B has T.
template <class T = float>
void multiply_few_rows(const Gemm& g) noexcept {
  const FewRowsTable<T>& table = few_rows_table<T>();
  (g.trans_b ? table.by_columns : table.by_rows)(static_cast<const float*>(g.a), g.lda,
                                                 static_cast<const T*>(g.b), g.ldb, static_cast<float*>(g.c),
                                                 g.ldc, g.m, g.n, g.k, g.accumulate);
}

}  // namespace strata::kernels::detail

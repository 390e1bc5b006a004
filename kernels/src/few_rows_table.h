#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// The inner extent over which a row of a GEMM is summed before the sum is added to those before it; see
/// Note [chains] in gemm_chains.h.
inline constexpr std::int64_t kChain = 256;

/// SIMD kernels of GEMMs of f32, bf16 or f16 with few rows: c[m, n] = a[m, k] b, plus c itself if
/// `accumulate`, all row-major with leading dimensions. Each element is summed by Note [chains]. Each
/// instruction set has one table, and all give the same bits.
template <class T>
struct FewRowsTable {
  using Multiply = void (*)(const float* a, std::int64_t lda, const T* b, std::int64_t ldb, float* c,
                            std::int64_t ldc, std::int64_t m, std::int64_t n, std::int64_t k,
                            bool accumulate);
  Multiply by_rows;     ///< b is stored as [k, n]
  Multiply by_columns;  ///< b is stored as [n, k]
};

/// The table of simd::active_isa().
template <class T>
const FewRowsTable<T>& few_rows_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::FewRowsTable<float>, few_rows_f32)
STRATA_DECLARE_ISA_TABLE(detail::FewRowsTable<bf16>, few_rows_bf16)
STRATA_DECLARE_ISA_TABLE(detail::FewRowsTable<f16>, few_rows_f16)
}  // namespace strata::kernels

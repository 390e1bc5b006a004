#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/runtime/dtype.h>

namespace strata::simd::detail {

/// Index of a dtype (f32, bf16 or f16) in the arrays below.
inline constexpr std::size_t kStorages = 3;
constexpr std::size_t storage_index(DType dtype) noexcept {
  return dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2;
}

struct GradientTable {
  void (*accumulate[kStorages])(float* acc, const void* g, bool first, std::int64_t n);
  void (*square_sum_partials[kStorages])(const void* x, std::int64_t n, double* partials);
};

}  // namespace strata::simd::detail

namespace strata::simd {
STRATA_DECLARE_ISA_TABLE(detail::GradientTable, gradient_table)
}  // namespace strata::simd

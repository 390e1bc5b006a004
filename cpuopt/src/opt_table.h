#pragma once

#include <cstdint>

#include <strata/cpuopt/adamw.h>
#include <strata/runtime/dtype.h>
#include <strata/cpuopt/isa_table.h>

namespace strata::cpuopt::detail {

/// f32, bf16, f16: how the entries below are numbered.
inline constexpr std::size_t kStorages = 3;
constexpr std::size_t storage_index(DType dtype) noexcept {
  return dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2;
}

/// One body per entry; each instruction set has one table.
struct OptTable {
  using AdamW = void (*)(const AdamWScalars<float>& s, float factor, const AdamWBlock& block, std::int64_t n);
  AdamW adamw[kStorages][2];  // by compute; f32 gradient or like compute
  void (*accumulate[kStorages])(float* acc, const void* g, bool first, std::int64_t n);
  void (*square_sum_leaves[kStorages])(const void* x, std::int64_t n, double* leaves);
  void (*split[kStorages])(const float* from, void* param, void* master, std::int64_t n);
  void (*join[kStorages])(const void* param, const void* master, float* into, std::int64_t n);
};

}  // namespace strata::cpuopt::detail

namespace strata::cpuopt {
STRATA_DECLARE_ISA_TABLE(detail::OptTable, opt_table)
}  // namespace strata::cpuopt

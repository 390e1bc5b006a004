#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>
#include <strata/simd/isa_table.h>

namespace strata::simd::detail {

struct ConvertTable {
  void (*widen_bf16)(const bf16* from, float* into, std::int64_t n);
  void (*widen_f16)(const f16* from, float* into, std::int64_t n);
  void (*narrow_bf16)(const float* from, bf16* into, std::int64_t n);
  void (*narrow_f16)(const float* from, f16* into, std::int64_t n);
};

}  // namespace strata::simd::detail

namespace strata::simd {
STRATA_DECLARE_ISA_TABLE(detail::ConvertTable, convert_table)
}  // namespace strata::simd

#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/cpuopt/master.h>
#include <strata/cpuopt/moments.h>

namespace strata::cpuopt::detail {

/// Kernels that convert masters and moments between f32 and their stored form. Spans of moments begin at a
/// multiple of kMomentBlock in their tensor.
struct StateTable {
  void (*split[kMasterLayouts])(const float* from, void* param, void* master, std::int64_t n);
  void (*join[kMasterLayouts])(const void* param, const void* master, float* into, std::int64_t n);
  /// Indexed by MomentKind.
  void (*decode_int8[2])(const std::uint8_t* quantized, const float* scales, float* into, std::int64_t n);
  void (*encode_int8[2])(const float* from, std::uint8_t* quantized, float* scales, bool stochastic,
                         RoundingNoise noise, std::uint32_t index, std::int64_t n);
  void (*encode_bf16[2])(const float* from, std::uint16_t* into, RoundingNoise noise, std::uint32_t index,
                         std::int64_t n);
};

}  // namespace strata::cpuopt::detail

namespace strata::cpuopt {
STRATA_DECLARE_ISA_TABLE(detail::StateTable, state_table)
}  // namespace strata::cpuopt

#pragma once

#include <cstdint>
#include <span>

#include <strata/runtime/dtype.h>

namespace strata::cpuopt {

/// How the f32 master of a parameter is stored.
enum class MasterLayout : std::uint8_t {
  f32,          ///< `param` is the master; `master` is unused
  bf16_split,   ///< `param`: its upper half, a bf16; `master`: u16, the lower half (math/master.h)
  bf16_shadow,  ///< `param`: the master rounded to bf16; `master`: f32
  f16_shadow,   ///< `param`: the master rounded to f16; `master`: f32
};
inline constexpr std::size_t kMasterLayouts = 4;
/// The layout of a parameter that the model reads in dtype `compute` (f32, bf16 or f16).
constexpr MasterLayout master_layout(DType compute) noexcept {
  return compute == DType::f32    ? MasterLayout::f32
         : compute == DType::bf16 ? MasterLayout::bf16_split
                                  : MasterLayout::f16_shadow;
}
constexpr std::size_t param_bytes(MasterLayout layout) noexcept {
  return layout == MasterLayout::f32 ? 4 : 2;
}
constexpr std::size_t master_bytes(MasterLayout layout) noexcept {
  return layout == MasterLayout::f32 ? 0 : layout == MasterLayout::bf16_split ? 2 : 4;
}

/// Convert f32 masters to a layout and back, with the same bits after the round trip. Not threaded.
void split_masters(std::span<const float> from, MasterLayout layout, void* param, void* master) noexcept;
void join_masters(MasterLayout layout, const void* param, const void* master, std::span<float> into) noexcept;

}  // namespace strata::cpuopt

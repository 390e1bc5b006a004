#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

namespace strata::simd {

/// An f32 master as two 16-bit halves. `high`, rounded half away from zero, is the bf16 parameter that the
/// model reads; `low` is the signed remainder: bits = (high << 16) + low. The split is exact for every value,
/// except that every NaN becomes the canonical quiet NaN.
struct SplitMaster {
  bf16 high;
  std::uint16_t low;
};
STRATA_HD SplitMaster split_master(float master) {
  auto bits = __builtin_bit_cast(std::uint32_t, master);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) bits = 0x7FC00000u;
  return {{static_cast<std::uint16_t>((bits + 0x8000u) >> 16)}, static_cast<std::uint16_t>(bits)};
}
STRATA_HD float join_master(bf16 high, std::uint16_t low) {
  const auto signed_low =
      static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int16_t>(low)));
  return __builtin_bit_cast(float, (static_cast<std::uint32_t>(high.bits) << 16) + signed_low);
}

}  // namespace strata::simd

#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>

// Inlining is forced for the reason given in float16.h.
#define STRATA_F8_FUNCTION [[gnu::always_inline]] constexpr

namespace strata {

/// Largest finite values of the 8-bit formats (Micikevicius et al. 2022, arXiv 2209.05433). e4m3 has no
/// infinities and one NaN of either sign; e5m2 is the upper half of an f16.
inline constexpr float kMaxE4M3 = 448.0f, kMaxE5M2 = 57344.0f;

namespace detail {

/// Rounds x to nearest, ties to even, to `kMantissa` mantissa bits and an exponent of bias `kBias`.
/// Magnitudes whose code would exceed `kMaxCode` saturate to it. NaN becomes 0x7F with x's sign.
template <int kMantissa, int kBias, std::uint32_t kMaxCode>
STRATA_F8_FUNCTION std::uint8_t to_f8(float x) noexcept {
  constexpr int kDropped = 23 - kMantissa;
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint8_t>(sign | 0x7Fu);
  constexpr std::uint32_t kMinNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  std::uint32_t code = 0;
  if (magnitude < kMinNormal) {
    // Subnormal: adding a power of two leaves multiples of the smallest subnormal in the low bits.
    constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(128 - kBias + kDropped) << 23;
    const float shifted = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, kMagic);
    code = __builtin_bit_cast(std::uint32_t, shifted) - kMagic;
  } else {
    constexpr std::uint32_t kHalf = (1u << (kDropped - 1)) - 1;
    const std::uint32_t rounded = magnitude + kHalf + (magnitude >> kDropped & 1u);
    code = (rounded - (static_cast<std::uint32_t>(127 - kBias) << 23)) >> kDropped;
  }
  return static_cast<std::uint8_t>(sign | (code < kMaxCode ? code : kMaxCode));
}

}  // namespace detail

/// Magnitudes past 448, infinity included, saturate to +-448.
STRATA_F8_FUNCTION std::uint8_t f32_to_e4m3(float x) noexcept { return detail::to_f8<3, 7, 0x7E>(x); }
/// Magnitudes past 57,344, infinity included, saturate to +-57,344.
STRATA_F8_FUNCTION std::uint8_t f32_to_e5m2(float x) noexcept { return detail::to_f8<2, 15, 0x7B>(x); }

STRATA_F8_FUNCTION float e4m3_to_f32(std::uint8_t code) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t exponent = code >> 3 & 0xFu, mantissa = code & 0x7u;
  if ((code & 0x7Fu) == 0x7Fu) return __builtin_bit_cast(float, sign | 0x7FC00000u);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, magnitude) | sign);
  }
  return __builtin_bit_cast(float, sign | (exponent + 120) << 23 | mantissa << 20);
}
STRATA_F8_FUNCTION float e5m2_to_f32(std::uint8_t code) noexcept {
  return f16_to_f32(static_cast<std::uint16_t>(code << 8));
}

}  // namespace strata

#undef STRATA_F8_FUNCTION

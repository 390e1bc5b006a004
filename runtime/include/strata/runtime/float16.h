#pragma once

#include <cstdint>

#include <strata/runtime/dtype.h>

// Inlining is forced because translation units compiled for different instruction sets use these functions:
// an out-of-line copy compiled for one set must not replace that of another at link time.
#define STRATA_F16_FUNCTION [[gnu::always_inline]] constexpr

namespace strata {

// 16-bit storage types without arithmetic: convert with to_f32(), compute, convert back with from_f32().
struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

STRATA_F16_FUNCTION float bf16_to_f32(std::uint16_t bits) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}
/// Rounds to nearest, ties to even; NaN stays NaN.
STRATA_F16_FUNCTION std::uint16_t f32_to_bf16(float x) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
STRATA_F16_FUNCTION float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1Fu, mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 0xFFu : exponent + 112;
  return __builtin_bit_cast(float, sign | wide << 23 | mantissa << 13);
}
/// Rounds to nearest, ties to even; values past 65,504 become infinity; NaN stays NaN.
STRATA_F16_FUNCTION std::uint16_t f32_to_f16(float x) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65,520 rounds up
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves multiples of 2^-24 in the low bits
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

STRATA_F16_FUNCTION float to_f32(float x) noexcept { return x; }
STRATA_F16_FUNCTION float to_f32(bf16 x) noexcept { return bf16_to_f32(x.bits); }
STRATA_F16_FUNCTION float to_f32(f16 x) noexcept { return f16_to_f32(x.bits); }

/// T is float, bf16 or f16.
template <class T>
T from_f32(float x) noexcept = delete;
template <>
STRATA_F16_FUNCTION float from_f32<float>(float x) noexcept {
  return x;
}
template <>
STRATA_F16_FUNCTION bf16 from_f32<bf16>(float x) noexcept {
  return {f32_to_bf16(x)};
}
template <>
STRATA_F16_FUNCTION f16 from_f32<f16>(float x) noexcept {
  return {f32_to_f16(x)};
}

/// The DType that corresponds to a C++ storage type.
template <class T>
extern const DType dtype_of;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;

}  // namespace strata

#undef STRATA_F16_FUNCTION

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
/// Rounds to nearest, ties to even; a NaN stays one.
constexpr std::uint16_t f32_to_bf16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
float f16_to_f32(std::uint16_t bits) noexcept;
/// Rounds to nearest, ties to even; past 65,504 infinity; a NaN stays one.
std::uint16_t f32_to_f16(float x) noexcept;

/// into[i] = element i of `from`, of `dtype` f32, bf16 or f16; every value is exact. `from` needs no
/// alignment. Errors: `unsupported` for another dtype; `invalid` unless the sizes agree, naming both.
Status widen_to_f32(DType dtype, std::span<const std::byte> from, std::span<float> into);
/// The other way, rounding to nearest even.
Status narrow_from_f32(std::span<const float> from, DType dtype, std::span<std::byte> into);

}  // namespace strata

#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/kernels/values/weight_format.h>

#include "cuda/quant/nf4_levels.h"

// What the codes of values and of scales stand for, and back. E2M1 and E8M0 are those of the OCP Microscaling
// Formats specification 1.0 (Rouhani et al. 2023, arXiv 2310.10537); E4M3 is in float8.h.
namespace strata::kernels::detail {

/// The values of the 16 codes of a type of 4 bits.
struct CodeLevels {
  float of[16];
};
/// E2M1: a sign, an exponent with bias 1 and a bit of the fraction, and 0.5 as its one subnormal value.
constexpr CodeLevels e2m1_levels() {
  CodeLevels levels{};
  for (int code = 0; code < 16; ++code) {
    const int exponent = code >> 1 & 3, fraction = code & 1;
    const float magnitude = exponent == 0 ? 0.5f * static_cast<float>(fraction)
                                          : (1.0f + 0.5f * static_cast<float>(fraction)) *
                                                static_cast<float>(1 << (exponent - 1));
    levels.of[code] = code < 8 ? magnitude : -magnitude;
  }
  return levels;
}
/// The integers from -8 to 7, each as its distance from -8.
constexpr CodeLevels int4_levels() {
  CodeLevels levels{};
  for (int code = 0; code < 16; ++code) levels.of[code] = static_cast<float>(code - 8);
  return levels;
}
constexpr CodeLevels code_levels(ValueType type) {
  if (type == ValueType::e2m1) return e2m1_levels();
  if (type == ValueType::int4) return int4_levels();
  CodeLevels levels{};
  for (int code = 0; code < 16; ++code) levels.of[code] = kNf4Levels[code];
  return levels;
}

/// The nearest value of E2M1, an even code of two that are equally near; magnitudes above 6 become 6. Of a
/// NaN the code is 0.
STRATA_HD std::uint8_t f32_to_e2m1(float x) {
  const float a = x < 0.0f ? -x : x;
  const int code = (a > 0.25f ? 1 : 0) + (a >= 0.75f ? 1 : 0) + (a > 1.25f ? 1 : 0) + (a >= 1.75f ? 1 : 0) +
                   (a > 2.5f ? 1 : 0) + (a >= 3.5f ? 1 : 0) + (a > 5.0f ? 1 : 0);
  const std::uint32_t sign = x == x ? __builtin_bit_cast(std::uint32_t, x) >> 31 : 0u;
  return static_cast<std::uint8_t>(sign << 3 | static_cast<std::uint32_t>(code));
}

/// 2^(code - 127), of which the first is subnormal in f32; 255 is NaN.
STRATA_HD float e8m0_to_f32(std::uint8_t code) {
  const std::uint32_t bits = code == 255 ? 0x7FC00000u : code == 0 ? 0x00400000u : std::uint32_t{code} << 23;
  return __builtin_bit_cast(float, bits);
}
inline constexpr std::uint8_t kE8m0NaN = 255;
/// The scale of a block of E2M1 with that largest magnitude: its exponent less 2, which is that of 6; no less
/// than -127.
STRATA_HD std::uint8_t e8m0_of_largest(float largest) {
  const std::uint32_t exponent = __builtin_bit_cast(std::uint32_t, largest) >> 23;
  return static_cast<std::uint8_t>(exponent > 2 ? exponent - 2 : 0);
}
/// The code of a power of two, or of NaN.
STRATA_HD std::uint8_t f32_to_e8m0(float power) {
  return static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, power) >> 23);
}

}  // namespace strata::kernels::detail

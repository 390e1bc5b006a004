#pragma once

#include <cstdint>
#include <utility>

#include <strata/cpuopt/math/hd.h>
#include <strata/kernels/block_codes.h>
#include <strata/runtime/float16.h>

#include "cuda/lanes.h"

// Values and their codes in a block. The host runs the same bodies.
namespace strata::kernels::detail {

inline constexpr float kNf4Levels[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};
// Constants each: an index into the table would put it into a thread's memory.
template <int kCode>
inline constexpr float kNf4Level = kNf4Levels[kCode];
template <int kCode>
inline constexpr float kNf4Middle = (kNf4Levels[kCode] + kNf4Levels[kCode + 1]) / 2;

/// How many levels' middles `share` is past.
template <int... kCodes>
STRATA_HD int nf4_code(float share, std::integer_sequence<int, kCodes...>) {
  return (0 + ... + (share > kNf4Middle<kCodes> ? 1 : 0));
}

/// The code of `x`, of no larger magnitude than `scale`; that of zero, if that is NaN.
STRATA_HD std::uint8_t block_code(BlockFormat format, float x, float scale) {
  const float share = scale > 0.0f ? x / scale : 0.0f;
  if (format == BlockFormat::nf4)
    return static_cast<std::uint8_t>(nf4_code(share, std::make_integer_sequence<int, 15>()));
  // Adding it leaves integers in the low bits, rounded to nearest even.
  constexpr float kMagic = 12582912.0f;
  return static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, share * 127.0f + kMagic));
}

/// What a code of int8 is of its block's scale; 127 is all of it.
STRATA_HD float int8_share(std::uint8_t code) {
  constexpr float kPart = 1.0f / 127.0f;
  static_assert(127.0f * kPart == 1.0f);
  return static_cast<float>(static_cast<std::int8_t>(code)) * kPart;
}

/// A thread decodes so many values at a time, all of one block.
inline constexpr int kDecodedRun = 8;
static_assert(kBlockMultiple % kDecodedRun == 0);

/// Value `i` of those whose codes begin at `codes`; `levels` are NF4's.
STRATA_HD float decoded(BlockFormat format, const std::uint8_t* codes, int i, const float* levels,
                        float scale) {
  if (format == BlockFormat::int8) return int8_share(codes[i]) * scale;
  return levels[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 0xF] * scale;
}

template <class T>
struct alignas(16) DecodedRun {
  T values[kDecodedRun];
};
template <int kBytes>
struct alignas(kBytes) CodeRun {
  std::uint8_t bytes[kBytes];
};

/// Writes values [first, first + kDecodedRun) of n, at once where `kWide`: codes are then 8-aligned, x is
/// 16-aligned.
template <bool kWide, BlockFormat kFormat, class T>
STRATA_HD void decode_run(const std::uint8_t* codes, const float* levels, float scale, std::int64_t first,
                          std::int64_t n, T* x) {
  constexpr int kBytes = kFormat == BlockFormat::nf4 ? kDecodedRun / 2 : kDecodedRun;
  codes += block_code_bytes(kFormat, first);
  x += first;
  if (kWide && first + kDecodedRun <= n) {
    const auto run = *reinterpret_cast<const CodeRun<kBytes>*>(codes);
    DecodedRun<T> out;
    for (int i = 0; i < kDecodedRun; ++i)
      out.values[i] = from_f32<T>(decoded(kFormat, run.bytes, i, levels, scale));
    *reinterpret_cast<DecodedRun<T>*>(x) = out;
    return;
  }
  for (int i = 0; i < kDecodedRun && first + i < n; ++i)
    x[i] = from_f32<T>(decoded(kFormat, codes, i, levels, scale));
}

/// Byte `at` of the codes of a block of `n` values.
template <class T>
STRATA_HD std::uint8_t code_byte(BlockFormat format, const T* x, std::int64_t at, std::int64_t n,
                                 float scale) {
  if (format == BlockFormat::int8) return block_code(format, to_f32(x[at]), scale);
  const std::uint8_t upper = block_code(format, to_f32(x[2 * at]), scale);
  const float second = 2 * at + 1 < n ? to_f32(x[2 * at + 1]) : 0.0f;
  return static_cast<std::uint8_t>(upper << 4 | block_code(format, second, scale));
}

/// Codes and scale of a block of `n` values.
template <class Lanes, class T>
STRATA_LANES_BODY void quantize_block(const Lanes& lanes, BlockFormat format, const T* x, std::int64_t n,
                                      std::uint8_t* codes, float* scale) {
  constexpr float kInfinity = __builtin_huge_valf(), kNaN = __builtin_nanf("");
  const float most = lanes.most(n, 0.0f, [&](std::int64_t i) {
    const float magnitude = __builtin_fabsf(to_f32(x[i]));
    return magnitude < kInfinity ? magnitude : kInfinity;  // which a NaN is, too
  });
  const float all = most < kInfinity ? most : kNaN;
  lanes.each(block_code_bytes(format, n),
             [&](std::int64_t i) { codes[i] = code_byte(format, x, i, n, all); });
  if (lanes.leads()) *scale = all;
}

}  // namespace strata::kernels::detail

#pragma once

#include <cstdint>
#include <utility>

#include <strata/cpuopt/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/kernels/block_quant.h>
#include <strata/runtime/float16.h>

// Quantization of blocks of values to codes, and back. The host runs the same functions.
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
// Separate constants, because an index into the table would place it in a thread's local memory.
template <int kCode>
inline constexpr float kNf4Level = kNf4Levels[kCode];
template <int kCode>
inline constexpr float kNf4Middle = (kNf4Levels[kCode] + kNf4Levels[kCode + 1]) / 2;

/// The code of the NF4 level nearest to `share`: the number of midpoints between levels that it exceeds.
template <int... kCodes>
STRATA_HD int quantize_nf4(float share, std::integer_sequence<int, kCodes...>) {
  return (0 + ... + (share > kNf4Middle<kCodes> ? 1 : 0));
}

/// The code of `x`, where |x| <= scale; the code of zero if the scale is zero or NaN.
STRATA_HD std::uint8_t quantize_value(BlockQuantFormat format, float x, float scale) {
  const float share = scale > 0.0f ? x / scale : 0.0f;
  if (format == BlockQuantFormat::nf4)
    return static_cast<std::uint8_t>(quantize_nf4(share, std::make_integer_sequence<int, 15>()));
  // Adding this leaves the integer, rounded to nearest even, in the low bits.
  constexpr float kMagic = 12582912.0f;
  return static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, share * 127.0f + kMagic));
}

/// The fraction of its block's scale that an int8 code represents; 127 is all of it.
STRATA_HD float int8_fraction(std::uint8_t code) {
  constexpr float kPart = 1.0f / 127.0f;
  static_assert(127.0f * kPart == 1.0f);
  return static_cast<float>(static_cast<std::int8_t>(code)) * kPart;
}

/// A thread dequantizes this many values at a time, all of one block.
inline constexpr int kDequantizedRun = 8;
static_assert(kQuantBlockMultiple % kDequantizedRun == 0);

/// Value `i` of those whose codes begin at `quantized`; `levels` are NF4's.
STRATA_HD float dequantize(BlockQuantFormat format, const std::uint8_t* quantized, int i, const float* levels,
                           float scale) {
  if (format == BlockQuantFormat::int8) return int8_fraction(quantized[i]) * scale;
  return levels[i % 2 == 0 ? quantized[i / 2] >> 4 : quantized[i / 2] & 0xF] * scale;
}

template <class T>
struct alignas(16) DequantizedRun {
  T values[kDequantizedRun];
};
template <int kBytes>
struct alignas(kBytes) QuantizedRun {
  std::uint8_t bytes[kBytes];
};

/// Dequantizes values [first, first + kDequantizedRun) of n. `kWide`: with vector loads and stores; the codes
/// must be 8-byte aligned and x 16-byte aligned.
template <bool kWide, BlockQuantFormat kFormat, class T>
STRATA_HD void dequantize_run(const std::uint8_t* quantized, const float* levels, float scale,
                              std::int64_t first, std::int64_t n, T* x) {
  constexpr int kBytes = kFormat == BlockQuantFormat::nf4 ? kDequantizedRun / 2 : kDequantizedRun;
  quantized += quantized_bytes(kFormat, first);
  x += first;
  if (kWide && first + kDequantizedRun <= n) {
    const auto run = *reinterpret_cast<const QuantizedRun<kBytes>*>(quantized);
    DequantizedRun<T> out;
    for (int i = 0; i < kDequantizedRun; ++i)
      out.values[i] = from_f32<T>(dequantize(kFormat, run.bytes, i, levels, scale));
    *reinterpret_cast<DequantizedRun<T>*>(x) = out;
    return;
  }
  for (int i = 0; i < kDequantizedRun && first + i < n; ++i)
    x[i] = from_f32<T>(dequantize(kFormat, quantized, i, levels, scale));
}

/// Byte `at` of the codes of a block of `n` values.
template <class T>
STRATA_HD std::uint8_t quantized_byte(BlockQuantFormat format, const T* x, std::int64_t at, std::int64_t n,
                                      float scale) {
  if (format == BlockQuantFormat::int8) return quantize_value(format, to_f32(x[at]), scale);
  const std::uint8_t upper = quantize_value(format, to_f32(x[2 * at]), scale);
  const float second = 2 * at + 1 < n ? to_f32(x[2 * at + 1]) : 0.0f;
  return static_cast<std::uint8_t>(upper << 4 | quantize_value(format, second, scale));
}

/// Computes the codes and the scale of a block of `n` values.
template <class Lanes, class T>
STRATA_DEVICE_INLINE void quantize_block(const Lanes& lanes, BlockQuantFormat format, const T* x,
                                         std::int64_t n, std::uint8_t* quantized, float* scale) {
  constexpr float kInfinity = __builtin_huge_valf(), kNaN = __builtin_nanf("");
  const float amax = lanes.max(n, 0.0f, [&](std::int64_t i) {
    const float magnitude = __builtin_fabsf(to_f32(x[i]));
    return magnitude < kInfinity ? magnitude : kInfinity;  // a NaN becomes infinity, too
  });
  const float scale_or_nan = amax < kInfinity ? amax : kNaN;
  lanes.for_each(quantized_bytes(format, n),
                 [&](std::int64_t i) { quantized[i] = quantized_byte(format, x, i, n, scale_or_nan); });
  if (lanes.is_leader()) *scale = scale_or_nan;
}

}  // namespace strata::kernels::detail

#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/float16.h>

#include "cuda/quant/nf4_levels.h"

// Dequantization of parts of a quantized matrix. The host runs the same functions.
namespace strata::kernels::detail {

/// A part of a quantized matrix in memory.
struct PartData {
  WeightFormat format = WeightFormat::full;
  std::int64_t elems = 0;
  const std::uint8_t* values = nullptr;
  const std::uint8_t* scales = nullptr;  ///< f32 or codes
  const float* group_scales = nullptr;
  const float* map = nullptr;
  const float* mean = nullptr;
};

inline PartData data_of(const QuantizedMatrix& matrix, std::size_t index, const std::byte* bytes) {
  const QuantizedPart part = matrix.part(index);
  const auto* const at = reinterpret_cast<const std::uint8_t*>(bytes);
  return {matrix.format,
          part.elems,
          at + part.values,
          at + part.scales,
          reinterpret_cast<const float*>(at + part.group_scales),
          reinterpret_cast<const float*>(at + part.map),
          reinterpret_cast<const float*>(at + part.mean)};
}

STRATA_HD float scale_of_block(const PartData& part, std::int64_t block) {
  if (part.format != WeightFormat::nf4_dq) return reinterpret_cast<const float*>(part.scales)[block];
  // Rounded twice, as bitsandbytes computes it.
  const float above_mean = part.map[part.scales[block]] * part.group_scales[block / kWeightGroup];
  return above_mean + *part.mean;
}

/// The fraction of its block's scale that an int8 code represents; 127 is all of it.
STRATA_HD float int8_fraction(std::uint8_t code) {
  constexpr float kPart = 1.0f / 127.0f;
  static_assert(127.0f * kPart == 1.0f);
  return static_cast<float>(static_cast<std::int8_t>(code)) * kPart;
}

/// Value `i` of those whose codes begin at `codes`. `levels` are NF4's.
STRATA_HD float dequantized(WeightFormat format, const std::uint8_t* codes, std::int64_t i,
                            const float* levels, float scale) {
  if (format == WeightFormat::int8) return int8_fraction(codes[i]) * scale;
  return levels[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 0xF] * scale;
}

/// A thread of the device dequantizes this many values of a row.
inline constexpr int kDequantizedRun = 8;
static_assert(kWeightBlock % kDequantizedRun == 0);

/// Values [first, first + n) of the part.
template <class T>
STRATA_HD void dequantize_values(const PartData& part, std::int64_t first, std::int64_t n,
                                 const float* levels, T* out) {
  std::int64_t block = -1;
  float scale = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = first + i;
    if (at / kWeightBlock != block) {
      block = at / kWeightBlock;
      scale = scale_of_block(part, block);
    }
    out[i] = from_f32<T>(dequantized(part.format, part.values, at, levels, scale));
  }
}

template <class T>
struct alignas(16) DequantizedRun {
  T values[kDequantizedRun];
};
template <int kBytes>
struct alignas(kBytes) QuantizedRun {
  std::uint8_t bytes[kBytes];
};

/// The same for kDequantizedRun values of one block, with vector loads and stores: `first` is a multiple of
/// kDequantizedRun, and `out` is 16-byte aligned.
template <int kBytes, class T>
STRATA_HD void dequantize_run(const PartData& part, std::int64_t first, const float* levels, T* out) {
  const auto run =
      *reinterpret_cast<const QuantizedRun<kBytes>*>(part.values + first * kBytes / kDequantizedRun);
  const float scale = scale_of_block(part, first / kWeightBlock);
  DequantizedRun<T> values;
  for (int i = 0; i < kDequantizedRun; ++i)
    values.values[i] = from_f32<T>(dequantized(part.format, run.bytes, i, levels, scale));
  *reinterpret_cast<DequantizedRun<T>*>(out) = values;
}
template <class T>
STRATA_HD void dequantize_run(const PartData& part, std::int64_t first, const float* levels, T* out) {
  if (part.format == WeightFormat::int8)
    dequantize_run<kDequantizedRun>(part, first, levels, out);
  else
    dequantize_run<kDequantizedRun / 2>(part, first, levels, out);
}

}  // namespace strata::kernels::detail

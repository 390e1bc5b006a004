#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/float8.h>

#include "cuda/quant/weight_codes.h"

// Dequantization of parts of a quantized matrix. The host runs the same functions.
namespace strata::kernels::detail {

/// A part of a quantized matrix in memory.
struct PartData {
  ValueType value_type = ValueType::int8;
  Packing packing = Packing::bytes;
  ScaleType scale_type = ScaleType::f32;
  bool by_rows = false;
  std::int32_t line_shift = 0, block_shift = 0;  ///< log2 of a block's rows and columns
  std::int64_t columns = 0;
  std::int64_t line_elems = 0, line_codes = 0, line_blocks = 0;
  const std::uint8_t* values = nullptr;
  const std::uint8_t* scales = nullptr;
  const float* group_scales = nullptr;
  const float* map = nullptr;
  const float* mean = nullptr;
};

inline PartData data_of(const QuantizedMatrix& matrix, const QuantizedPart& part, const std::byte* bytes) {
  const WeightFormatTraits& f = traits_of(matrix.format);
  const auto* const at = reinterpret_cast<const std::uint8_t*>(bytes);
  return {f.values,
          f.packing,
          f.scales,
          f.by_rows,
          std::countr_zero(static_cast<std::uint32_t>(f.block_rows)),
          std::countr_zero(static_cast<std::uint32_t>(f.block_columns)),
          matrix.columns,
          part.line_elems,
          part.line_codes,
          part.line_blocks,
          at + part.values,
          at + part.scales,
          reinterpret_cast<const float*>(at + part.group_scales),
          reinterpret_cast<const float*>(at + part.map),
          reinterpret_cast<const float*>(at + part.mean)};
}

/// The same part of the matrix that begins `bytes` bytes behind this one.
STRATA_HD PartData part_behind(PartData part, std::int64_t bytes) {
  part.values += bytes;
  part.scales += bytes;
  part.group_scales += bytes / 4;
  part.map += bytes / 4;
  part.mean += bytes / 4;
  return part;
}

/// Where a value is: its line, and which of the line's values it is.
struct ValuePlace {
  std::int64_t line, at;
};
STRATA_HD ValuePlace place_of(const PartData& part, std::int64_t row, std::int64_t column) {
  if (part.by_rows) return {row, column};
  return {0, row * part.columns + column};
}
STRATA_HD std::int64_t code_of(const PartData& part, const ValuePlace& place) {
  return place.line * part.line_codes + place.at;
}
STRATA_HD std::int64_t block_of(const PartData& part, const ValuePlace& place) {
  return (place.line >> part.line_shift) * part.line_blocks + (place.at >> part.block_shift);
}

STRATA_HD float scale_of_block(const PartData& part, std::int64_t block) {
  switch (part.scale_type) {
    case ScaleType::f32:
      return reinterpret_cast<const float*>(part.scales)[block];
    case ScaleType::e8m0:
      return e8m0_to_f32(part.scales[block]);
    case ScaleType::bf16:
      return bf16_to_f32(reinterpret_cast<const std::uint16_t*>(part.scales)[block]);
    case ScaleType::grouped:
      break;
  }
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

/// Value `i` of those whose codes begin at `codes`. `levels` are those of a type of 4 bits.
STRATA_HD float dequantized(const PartData& part, const std::uint8_t* codes, std::int64_t i,
                            const float* levels, float scale) {
  if (part.packing == Packing::bytes)
    return (part.value_type == ValueType::int8 ? int8_fraction(codes[i]) : e4m3_to_f32(codes[i])) * scale;
  const bool is_upper = (i % 2 == 0) == (part.packing == Packing::first_upper);
  return levels[is_upper ? codes[i / 2] >> 4 : codes[i / 2] & 0xF] * scale;
}

/// A thread of the device dequantizes this many values of a row.
inline constexpr int kDequantizedRun = 8;

/// The first `n` values from `place` on, which are of its line.
template <class T>
STRATA_HD void dequantize_values(const PartData& part, ValuePlace place, std::int64_t n, const float* levels,
                                 T* out) {
  std::int64_t block = -1;
  float scale = 0;
  for (std::int64_t i = 0; i < n; ++i, ++place.at) {
    if (block_of(part, place) != block) {
      block = block_of(part, place);
      scale = scale_of_block(part, block);
    }
    out[i] = from_f32<T>(dequantized(part, part.values, code_of(part, place), levels, scale));
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

/// The same for kDequantizedRun values of one block, with vector loads and stores: the code's place is a
/// multiple of kDequantizedRun, and `out` is 16-byte aligned.
template <int kBytes, class T>
STRATA_HD void dequantize_run(const PartData& part, const ValuePlace& place, const float* levels, T* out) {
  const auto run = *reinterpret_cast<const QuantizedRun<kBytes>*>(part.values + code_of(part, place) *
                                                                                    kBytes / kDequantizedRun);
  const float scale = scale_of_block(part, block_of(part, place));
  DequantizedRun<T> values;
  for (int i = 0; i < kDequantizedRun; ++i)
    values.values[i] = from_f32<T>(dequantized(part, run.bytes, i, levels, scale));
  *reinterpret_cast<DequantizedRun<T>*>(out) = values;
}
template <class T>
STRATA_HD void dequantize_run(const PartData& part, const ValuePlace& place, const float* levels, T* out) {
  if (part.packing == Packing::bytes)
    dequantize_run<kDequantizedRun>(part, place, levels, out);
  else
    dequantize_run<kDequantizedRun / 2>(part, place, levels, out);
}

}  // namespace strata::kernels::detail

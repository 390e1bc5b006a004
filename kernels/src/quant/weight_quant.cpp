#include <strata/kernels/weight_quant.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "cuda/quant/dynamic_map.h"
#include "cuda/quant/weight_math.h"
#include "quant/dequantize_table.h"

namespace strata::kernels {
namespace {

constexpr detail::DynamicMap kMap = detail::dynamic_map();
constexpr std::int64_t kBlocksPerItem = 256, kElemsPerUnits = 16384;
constexpr std::size_t kMaxBlockColumns = 128;
static_assert(std::all_of(kWeightFormats.begin(), kWeightFormats.end(), [](const WeightFormatTraits& f) {
  return static_cast<std::size_t>(f.block_columns) <= kMaxBlockColumns;
}));
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A part of a block of NF4 at the end of a part of a matrix: the rest of the block is as if it were zeros.
void quantize_tail(std::span<const float> values, std::uint8_t* codes, float* scale) {
  std::array<float, detail::kLongBlock> block{};
  std::array<std::uint8_t, detail::kLongBlock / 2> of_block;
  std::copy(values.begin(), values.end(), block.begin());
  detail::quantize_table().nf4(block.data(), of_block.data(), scale, 1);
  std::copy_n(of_block.begin(), (values.size() + 1) / 2, codes);
}
void quantize_nf4(std::span<const float> values, std::uint8_t* codes, float* scales, ThreadPool& pool) {
  constexpr std::int64_t kBlock = detail::kLongBlock;
  const std::int64_t n = std::ssize(values), whole = n / kBlock;
  dispatch::parallel_for_ranges(pool, whole, kBlocksPerItem, [&](std::int64_t first, std::int64_t count) {
    detail::quantize_table().nf4(values.data() + first * kBlock, codes + first * kBlock / 2, scales + first,
                                 count);
  });
  if (whole * kBlock < n)
    quantize_tail(values.subspan(static_cast<std::size_t>(whole * kBlock)), codes + whole * kBlock / 2,
                  scales + whole);
}

/// The values of a block: of some lines, one after the other.
struct BlockValues {
  const float* at;
  std::int64_t lines, columns, stride;  ///< stride: from one line to the next

  /// The largest magnitude, or NaN if a value is not finite. Bits of floats without their sign are in the
  /// order of the floats, and the compiler vectorizes the maximum of integers.
  float largest() const {
    std::int32_t largest = 0;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t i = 0; i < columns; ++i)
        largest = std::max(largest, std::bit_cast<std::int32_t>(at[line * stride + i]) & 0x7FFFFFFF);
    return largest < 0x7F800000 ? std::bit_cast<float>(largest) : kNaN;
  }
};

/// The scale of a block, and the codes of its lines by `store(line, codes)`.
template <class Store>
float quantize_block(ValueType type, const BlockValues& block, const Store& store) {
  // Adding this leaves the integer, rounded to nearest even, in the low bits.
  constexpr float kMagic = 12582912.0f;
  const auto integer = [](float x) { return std::bit_cast<std::int32_t>(x + kMagic) - 0x4B400000; };
  const float largest = block.largest();
  const auto each = [&](float scale, const auto& code) {
    std::array<std::uint8_t, kMaxBlockColumns> codes;
    codes.fill(static_cast<std::uint8_t>(code(0.0f)));  // where the scale is 0 or NaN
    for (std::int64_t line = 0; line < block.lines; ++line) {
      const float* const values = block.at + line * block.stride;
      for (std::int64_t i = 0; scale > 0.0f && i < block.columns; ++i)
        codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code(values[i] / scale));
      store(line, codes.data());
    }
    return scale;
  };
  switch (type) {
    case ValueType::int8:
      return each(largest, [&](float share) { return integer(share * 127.0f); });
    case ValueType::int4:
      return each(bf16_to_f32(f32_to_bf16(largest / 7.0f)),
                  [&](float share) { return std::clamp(integer(share), -8, 7) + 8; });
    case ValueType::e4m3:
      return each(largest / kMaxE4M3, [](float share) { return f32_to_e4m3(share); });
    case ValueType::e2m1:
      // A power of two, by which values are divided without rounding.
      return each(std::isnan(largest) ? kNaN : detail::e8m0_to_f32(detail::e8m0_of_largest(largest)),
                  [](float share) { return detail::f32_to_e2m1(share); });
    case ValueType::nf4:
      break;
  }
  return kNaN;  // NF4 has SIMD kernels
}

/// Quantizes one unit of `lines` lines.
void quantize_unit(const WeightFormatTraits& f, const QuantizedPart& part, const float* values,
                   std::int64_t lines, std::int64_t columns, std::uint8_t* codes, float* scales) {
  const bool is_packed = f.packing != Packing::bytes;
  if (is_packed) std::fill_n(codes, lines * part.line_codes / 2, std::uint8_t{0});
  for (std::int64_t first = 0; first < columns; first += f.block_columns)
    *scales++ = quantize_block(
        f.values,
        BlockValues{values + first, lines, std::min<std::int64_t>(f.block_columns, columns - first), columns},
        [&](std::int64_t line, const std::uint8_t* of_line) {
          const std::int64_t n = std::min<std::int64_t>(f.block_columns, columns - first),
                             at = line * part.line_codes + first;
          if (!is_packed) {
            std::copy_n(of_line, n, codes + at);
            return;
          }
          std::uint8_t* const pairs = codes + at / 2;  // the first in the lower half
          for (std::int64_t i = 0; i < n / 2; ++i)
            pairs[i] = static_cast<std::uint8_t>(of_line[2 * i] | of_line[2 * i + 1] << 4);
          if (n % 2 != 0) pairs[n / 2] = of_line[n - 1];
        });
}

// A group of scales less their mean.
void quantize_group(std::span<const float> scales, float mean, std::uint8_t* codes, float* group_scale) {
  float largest = 0;
  for (const float scale : scales) largest = std::max(largest, std::abs(scale - mean));
  // A scale that is not finite makes all of its group so.
  const bool is_finite =
      std::all_of(scales.begin(), scales.end(), [](float scale) { return std::isfinite(scale); });
  *group_scale = is_finite ? largest : kNaN;
  const float inverse = 1.0f / std::max(largest, 1e-38f);
  for (std::size_t i = 0; i < scales.size(); ++i)
    codes[i] = detail::quantize_dynamic(kMap, is_finite ? (scales[i] - mean) * inverse : 0.0f);
}
void write_grouped_scales(const QuantizedPart& part, std::span<const float> scales, std::byte* into) {
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  auto* const codes = reinterpret_cast<std::uint8_t*>(into);
  auto* const group_scales = reinterpret_cast<float*>(into + (part.group_scales - part.scales));
  for (std::int64_t group = 0; group < part.groups; ++group) {
    const std::int64_t first = group * kWeightGroup;
    quantize_group(scales.subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(std::min(kWeightGroup, part.blocks - first))),
                   mean, codes + first, group_scales + group);
  }
  std::memcpy(into + (part.map - part.scales), kMap.of, sizeof kMap.of);
  std::memcpy(into + (part.mean - part.scales), &mean, sizeof mean);
}

}  // namespace

void quantize_weights(const QuantizedMatrix& matrix, std::span<const float> values, std::uint8_t* codes,
                      float* scales, ThreadPool& pool) {
  const WeightFormatTraits& f = traits_of(matrix.format);
  if (f.values == ValueType::nf4) return quantize_nf4(values, codes, scales, pool);
  const QuantizedPart part = matrix.part(0);
  const QuantizedUnits units = units_of(matrix, 0);
  const std::int64_t n = std::ssize(values);
  dispatch::parallel_for_ranges(
      pool, dispatch::ceil_div(n, units.elems), std::max<std::int64_t>(1, kElemsPerUnits / units.elems),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t unit = first; unit < first + count; ++unit) {
          const std::int64_t at = unit * units.elems, elems = std::min(units.elems, n - at),
                             columns = f.by_rows ? matrix.columns : elems;
          quantize_unit(f, part, values.data() + at, elems / columns, columns, codes + unit * units.bytes,
                        scales + unit * units.blocks);
        }
      });
}

void write_weight_scales(const QuantizedMatrix& matrix, std::size_t index, std::span<const float> scales,
                         std::byte* into) {
  switch (traits_of(matrix.format).scales) {
    case ScaleType::f32:
      std::memcpy(into, scales.data(), scales.size_bytes());
      return;
    case ScaleType::grouped:
      return write_grouped_scales(matrix.part(index), scales, into);
    case ScaleType::e8m0:
      std::transform(scales.begin(), scales.end(), reinterpret_cast<std::uint8_t*>(into),
                     [](float scale) { return detail::f32_to_e8m0(scale); });
      return;
    case ScaleType::bf16:
      std::transform(scales.begin(), scales.end(), reinterpret_cast<std::uint16_t*>(into),
                     [](float scale) { return f32_to_bf16(scale); });
      return;
  }
}

void quantize_matrix(const QuantizedMatrix& matrix, std::span<const float> values, std::span<std::byte> bytes,
                     ThreadPool& pool) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  for (std::int64_t m = 0; m < matrix.count; ++m)
    for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
      const QuantizedPart part = matrix.part(i);
      std::byte* const into = bytes.data() + m * matrix.matrix_bytes();
      std::vector<float> scales(static_cast<std::size_t>(part.blocks));
      quantize_weights(matrix,
                       values.subspan(static_cast<std::size_t>(m * matrix.matrix_elems() +
                                                               part.first_row * matrix.columns),
                                      static_cast<std::size_t>(part.elems)),
                       reinterpret_cast<std::uint8_t*>(into + part.values), scales.data(), pool);
      write_weight_scales(matrix, i, scales, into + part.scales);
    }
}

std::span<const float> scale_map() noexcept { return kMap.of; }

namespace detail {
const QuantizeTable& quantize_table() noexcept { return STRATA_ACTIVE_TABLE(quantize_f32); }
}  // namespace detail

}  // namespace strata::kernels

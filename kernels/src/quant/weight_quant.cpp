#include <strata/kernels/weight_quant.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "cuda/quant/dynamic_map.h"
#include "cuda/quant/weight_math.h"
#include "dtype_dispatch.h"
#include "quant/dequantize_panel.h"
#include "quant/dequantize_table.h"

namespace strata::kernels {
namespace {

using detail::PartData;

constexpr detail::DynamicMap kMap = detail::dynamic_map();
constexpr std::int64_t kBlocksPerItem = 256, kElemsPerItem = 32768;

// A part of a block of NF4 at the end of a part of a matrix: the rest of the block is as if it were zeros.
void quantize_tail(std::span<const float> values, std::uint8_t* codes, float* scale) {
  std::array<float, kWeightBlock> block{};
  std::array<std::uint8_t, kWeightBlock / 2> of_block;
  std::copy(values.begin(), values.end(), block.begin());
  detail::quantize_table().nf4(block.data(), of_block.data(), scale, 1);
  std::copy_n(of_block.begin(), (values.size() + 1) / 2, codes);
}

void quantize_int8(std::span<const float> values, std::uint8_t* codes, float* scale) {
  float largest = 0;
  bool is_finite = true;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
    is_finite = is_finite && std::isfinite(value);
  }
  *scale = is_finite ? largest : std::numeric_limits<float>::quiet_NaN();
  // Adding this leaves the integer, rounded to nearest even, in the low bits.
  constexpr float kMagic = 12582912.0f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float share = *scale > 0.0f ? values[i] / *scale : 0.0f;
    codes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(share * 127.0f + kMagic));
  }
}

// A group of scales less their mean.
void quantize_group(std::span<const float> scales, float mean, std::uint8_t* codes, float* group_scale) {
  float largest = 0;
  for (const float scale : scales) largest = std::max(largest, std::abs(scale - mean));
  // A scale that is not finite makes all of its group so.
  const bool is_finite =
      std::all_of(scales.begin(), scales.end(), [](float scale) { return std::isfinite(scale); });
  *group_scale = is_finite ? largest : std::numeric_limits<float>::quiet_NaN();
  const float inverse = 1.0f / std::max(largest, 1e-38f);
  for (std::size_t i = 0; i < scales.size(); ++i)
    codes[i] = detail::quantize_dynamic(kMap, is_finite ? (scales[i] - mean) * inverse : 0.0f);
}

// Dequantizes whole blocks from value `first`, which begins one.
template <class T>
void dequantize_blocks(const PartData& part, std::int64_t first, std::int64_t blocks, T* out) {
  constexpr std::int64_t kAtOnce = 64;
  const detail::DequantizeTable<T>& simd = detail::dequantize_table<T>();
  std::array<float, kAtOnce> scales;
  for (std::int64_t done = 0; done < blocks; done += kAtOnce) {
    const std::int64_t at = first + done * kWeightBlock, n = std::min(kAtOnce, blocks - done);
    for (std::int64_t i = 0; i < n; ++i)
      scales[static_cast<std::size_t>(i)] = detail::scale_of_block(part, at / kWeightBlock + i);
    if (part.format == WeightFormat::int8)
      simd.int8(part.values + at, scales.data(), out + done * kWeightBlock, n);
    else
      simd.nf4(part.values + at / 2, scales.data(), out + done * kWeightBlock, n);
  }
}

template <class T>
void dequantize_range(const PartData& part, std::int64_t first, std::int64_t n, T* out) {
  const auto some = [&](std::int64_t count) {
    detail::dequantize_values(part, first, count, detail::kNf4Levels, out);
    first += count;
    n -= count;
    out += count;
  };
  some(std::min(n, dispatch::ceil_div(first, kWeightBlock) * kWeightBlock - first));
  if (const std::int64_t blocks = n / kWeightBlock; blocks > 0) {
    dequantize_blocks(part, first, blocks, out);
    first += blocks * kWeightBlock;
    n -= blocks * kWeightBlock;
    out += blocks * kWeightBlock;
  }
  some(n);
}

}  // namespace

void quantize_weights(WeightFormat format, std::span<const float> values, std::uint8_t* codes, float* scales,
                      ThreadPool& pool) {
  const std::int64_t n = std::ssize(values), whole = n / kWeightBlock;
  const auto block = [&](std::int64_t index) {
    return values.subspan(static_cast<std::size_t>(index * kWeightBlock),
                          static_cast<std::size_t>(std::min(kWeightBlock, n - index * kWeightBlock)));
  };
  if (format == WeightFormat::int8) {
    dispatch::parallel_for_ranges(pool, dispatch::ceil_div(n, kWeightBlock), kBlocksPerItem,
                                  [&](std::int64_t first, std::int64_t count) {
                                    for (std::int64_t i = first; i < first + count; ++i)
                                      quantize_int8(block(i), codes + i * kWeightBlock, scales + i);
                                  });
    return;
  }
  dispatch::parallel_for_ranges(pool, whole, kBlocksPerItem, [&](std::int64_t first, std::int64_t count) {
    detail::quantize_table().nf4(values.data() + first * kWeightBlock, codes + first * kWeightBlock / 2,
                                 scales + first, count);
  });
  if (whole * kWeightBlock < n) quantize_tail(block(whole), codes + whole * kWeightBlock / 2, scales + whole);
}

void write_weight_scales(const QuantizedMatrix& matrix, std::size_t index, std::span<const float> scales,
                         std::byte* into) {
  const QuantizedPart part = matrix.part(index);
  if (matrix.format != WeightFormat::nf4_dq) {
    std::memcpy(into, scales.data(), scales.size_bytes());
    return;
  }
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

void quantize_matrix(const QuantizedMatrix& matrix, std::span<const float> values, std::span<std::byte> bytes,
                     ThreadPool& pool) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
    const QuantizedPart part = matrix.part(i);
    std::vector<float> scales(static_cast<std::size_t>(part.blocks));
    quantize_weights(matrix.format,
                     values.subspan(static_cast<std::size_t>(part.first_row * matrix.columns),
                                    static_cast<std::size_t>(part.elems)),
                     reinterpret_cast<std::uint8_t*>(bytes.data() + part.values), scales.data(), pool);
    write_weight_scales(matrix, i, scales, bytes.data() + part.scales);
  }
}

void dequantize_matrix(const QuantizedMatrix& matrix, std::span<const std::byte> bytes, std::int64_t first,
                       std::span<float> into) {
  const std::int64_t end = first + std::ssize(into);
  for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
    const QuantizedPart part = matrix.part(i);
    const std::int64_t begins = part.first_row * matrix.columns;
    const std::int64_t from = std::max(first, begins), to = std::min(end, begins + part.elems);
    if (from < to)
      dequantize_range(detail::data_of(matrix, i, bytes.data()), from - begins, to - from,
                       into.data() + (from - first));
  }
}

void dequantize_weights(WeightFormat format, const std::uint8_t* codes, std::span<const float> scales,
                        std::int64_t skip, std::span<float> into) {
  const WeightFormat as = format == WeightFormat::int8 ? WeightFormat::int8 : WeightFormat::nf4;
  const PartData part = {as,      skip + std::ssize(into),
                         codes,   reinterpret_cast<const std::uint8_t*>(scales.data()),
                         nullptr, nullptr};
  dequantize_range(part, skip, std::ssize(into), into.data());
}

void dequantize_scales(std::span<const std::uint8_t> codes, std::int64_t first_block,
                       std::span<const float> group_scales, std::span<const float> map, float mean,
                       std::span<float> into) {
  const PartData part = {WeightFormat::nf4_dq, 0,          nullptr, codes.data() - first_block,
                         group_scales.data(),  map.data(), &mean};
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = detail::scale_of_block(part, first_block + static_cast<std::int64_t>(i));
}

std::span<const float> nf4_levels() noexcept { return detail::kNf4Levels; }
std::span<const float> scale_map() noexcept { return kMap.of; }

void detail::dequantize_panel(const QuantizedMatrix& matrix, const std::byte* bytes, const Panel& panel,
                              DType dtype, void* out, ThreadPool& pool) {
  const std::int64_t rows_per_item = std::max<std::int64_t>(1, kElemsPerItem / panel.columns);
  dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
      const QuantizedPart part = matrix.part(i);
      const PartData data = data_of(matrix, i, bytes);
      const std::int64_t begin = std::max(panel.row, part.first_row),
                         end = std::min(panel.row + panel.rows, part.first_row + part.rows);
      if (begin >= end) continue;
      dispatch::parallel_for_ranges(
          pool, end - begin, rows_per_item, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t row = begin + first; row < begin + first + count; ++row)
              dequantize_range(data, (row - part.first_row) * matrix.columns + panel.column, panel.columns,
                               static_cast<T*>(out) + (row - panel.row) * panel.columns);
          });
    }
  });
}

namespace detail {
template <>
const DequantizeTable<float>& dequantize_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(dequantize_f32);
}
template <>
const DequantizeTable<bf16>& dequantize_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(dequantize_bf16);
}
template <>
const DequantizeTable<f16>& dequantize_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(dequantize_f16);
}
const QuantizeTable& quantize_table() noexcept { return STRATA_ACTIVE_TABLE(quantize_f32); }
}  // namespace detail

}  // namespace strata::kernels

#include <algorithm>
#include <array>
#include <type_traits>

#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/weight_quant.h>

#include "cuda/quant/weight_math.h"
#include "dtype_dispatch.h"
#include "quant/dequantize_panel.h"
#include "quant/dequantize_table.h"

namespace strata::kernels {
namespace {

using detail::PartData;
using detail::ValuePlace;

constexpr std::int64_t kElemsPerItem = 32768;
constexpr std::array kLevels = {detail::code_levels(ValueType::int8), detail::code_levels(ValueType::nf4),
                                detail::code_levels(ValueType::e2m1), detail::code_levels(ValueType::e4m3),
                                detail::code_levels(ValueType::int4)};
const float* levels_of_part(const PartData& part) {
  return kLevels[static_cast<std::size_t>(part.value_type)].of;
}

// Each function of the table has one length of blocks.
constexpr bool has_block(const WeightFormatTraits& f, std::int64_t columns) {
  return f.format == WeightFormat::full || f.values == ValueType::e4m3 || f.block_columns == columns;
}
static_assert(std::all_of(kWeightFormats.begin(), kWeightFormats.end(), [](const WeightFormatTraits& f) {
  return has_block(f, f.packing == Packing::first_lower ? detail::kShortBlock : detail::kLongBlock);
}));

/// Dequantizes whole blocks of a line, from one that begins at `place` on.
template <class T>
void dequantize_blocks(const PartData& part, ValuePlace place, std::int64_t blocks, T* out) {
  constexpr std::int64_t kAtOnce = 64;
  const detail::DequantizeTable<T>& simd = detail::dequantize_table<T>();
  const std::int64_t length = std::int64_t{1} << part.block_shift;
  std::array<float, kAtOnce> scales;
  while (blocks > 0) {
    const std::int64_t n = std::min(kAtOnce, blocks), first = detail::block_of(part, place),
                       code = detail::code_of(part, place);
    for (std::int64_t i = 0; i < n; ++i)
      scales[static_cast<std::size_t>(i)] = detail::scale_of_block(part, first + i);
    if (part.value_type == ValueType::e4m3)
      for (std::int64_t i = 0; i < n; ++i)
        simd.e4m3(part.values + code + i * length, scales[static_cast<std::size_t>(i)], out + i * length,
                  length);
    else if (part.packing == Packing::bytes)
      simd.int8(part.values + code, scales.data(), out, n);
    else if (part.packing == Packing::first_upper)
      simd.nf4(part.values + code / 2, scales.data(), out, n);
    else
      simd.first_lower(part.values + code / 2, levels_of_part(part), scales.data(), out, n);
    place.at += n * length;
    out += n * length;
    blocks -= n;
  }
}

/// The first `n` values of a line from `place` on.
template <class T>
void dequantize_in_line(const PartData& part, ValuePlace place, std::int64_t n, T* out) {
  const std::int64_t length = std::int64_t{1} << part.block_shift;
  const auto some = [&](std::int64_t count) {
    detail::dequantize_values(part, place, count, levels_of_part(part), out);
    place.at += count;
    n -= count;
    out += count;
  };
  some(std::min(n, dispatch::ceil_div(place.at, length) * length - place.at));
  if (const std::int64_t blocks = n / length; blocks > 0) {
    dequantize_blocks(part, place, blocks, out);
    place.at += blocks * length;
    n -= blocks * length;
    out += blocks * length;
  }
  some(n);
}

/// Values [first, first + n) of the part.
template <class T>
void dequantize_range(const PartData& part, std::int64_t first, std::int64_t n, T* out) {
  while (n > 0) {
    const ValuePlace place = {first / part.line_elems, first % part.line_elems};
    const std::int64_t count = std::min(n, part.line_elems - place.at);
    dequantize_in_line(part, place, count, out);
    first += count;
    n -= count;
    out += count;
  }
}

}  // namespace

void dequantize_matrix(const QuantizedMatrix& matrix, std::span<const std::byte> bytes, std::int64_t first,
                       std::span<float> into) {
  const std::int64_t end = first + std::ssize(into), of_matrix = matrix.matrix_elems();
  for (std::int64_t m = first / of_matrix; m * of_matrix < end; ++m)
    for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
      const QuantizedPart part = matrix.part(i);
      const std::int64_t begins = m * of_matrix + part.first_row * matrix.columns;
      const std::int64_t from = std::max(first, begins), to = std::min(end, begins + part.elems);
      if (from < to)
        dequantize_range(detail::data_of(matrix, part, bytes.data() + m * matrix.matrix_bytes()),
                         from - begins, to - from, into.data() + (from - first));
    }
}

void dequantize_weights(const QuantizedMatrix& matrix, const std::uint8_t* codes,
                        std::span<const float> scales, std::int64_t skip, std::span<float> into) {
  QuantizedPart sections = matrix.part(0);  // they are given one by one
  sections.values = sections.scales = sections.group_scales = sections.map = sections.mean = 0;
  PartData part = detail::data_of(matrix, sections, nullptr);
  if (!part.by_rows) part.line_elems = skip + std::ssize(into);
  part.values = codes;
  part.scales = reinterpret_cast<const std::uint8_t*>(scales.data());
  part.scale_type = ScaleType::f32;
  dequantize_range(part, skip, std::ssize(into), into.data());
}

void dequantize_scales(std::span<const std::uint8_t> codes, std::int64_t first_block,
                       std::span<const float> group_scales, std::span<const float> map, float mean,
                       std::span<float> into) {
  PartData part;
  part.scale_type = ScaleType::grouped;
  part.scales = codes.data() - first_block;
  part.group_scales = group_scales.data();
  part.map = map.data();
  part.mean = &mean;
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = detail::scale_of_block(part, first_block + static_cast<std::int64_t>(i));
}

std::span<const float> nf4_levels() noexcept { return detail::kNf4Levels; }

void detail::dequantize_panel(const QuantizedMatrix& matrix, const std::byte* bytes, const Panel& panel,
                              DType dtype, void* out, ThreadPool& pool) {
  const std::int64_t rows_per_item = std::max<std::int64_t>(1, kElemsPerItem / panel.columns);
  dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
      const QuantizedPart part = matrix.part(i);
      const PartData data = data_of(matrix, part, bytes);
      const std::int64_t begin = std::max(panel.row, part.first_row),
                         end = std::min(panel.row + panel.rows, part.first_row + part.rows);
      if (begin < end)
        dispatch::parallel_for_ranges(
            pool, end - begin, rows_per_item, [&](std::int64_t first, std::int64_t count) {
              for (std::int64_t row = begin + first; row < begin + first + count; ++row)
                dequantize_in_line(data, place_of(data, row - part.first_row, panel.column), panel.columns,
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
}  // namespace detail

}  // namespace strata::kernels

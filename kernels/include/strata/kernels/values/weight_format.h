#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::kernels {

/// How a matrix that is not trained is stored.
enum class WeightFormat : std::uint8_t {
  full,       ///< not quantized: in the dtype of the other parameters
  int8,       ///< 8 bits a value, and an f32 scale for each block
  nf4,        ///< 4 bits a value (Dettmers et al. 2023, arXiv 2305.14314), and an f32 scale for each block
  nf4_dq,     ///< the same with double quantization: 8-bit scales, with an f32 scale for each group of blocks
  mxfp4,      ///< E2M1 with a power of two for each block (OCP Microscaling Formats 1.0, arXiv 2310.10537)
  fp8_block,  ///< E4M3 with an f32 scale for each tile (DeepSeek-V3, arXiv 2412.19437)
  int4,       ///< 4-bit integers with a bf16 scale for each block (compressed-tensors' pack-quantized)
};

/// What the code of a value stands for, before it is multiplied by a scale.
enum class ValueType : std::uint8_t { int8, nf4, e2m1, e4m3, int4 };
/// How the scales of blocks are stored.
enum class ScaleType : std::uint8_t {
  f32,
  grouped,  ///< codes of the dynamic data type, with a scale for each group of blocks, and their mean
  e8m0,     ///< the exponent of a power of two
  bf16,
};
/// Where values of less than a byte are in it.
enum class Packing : std::uint8_t { bytes, first_upper, first_lower };

/// One row of the table of formats.
struct WeightFormatTraits {
  WeightFormat format;
  std::string_view name;  ///< in train.base; empty for `full`, whose name is that of the dtype
  ValueType values;
  Packing packing;
  ScaleType scales;
  /// The extents of a block, whose values share a scale: powers of two. If `by_rows`, blocks begin with each
  /// row, and the codes of a row are those of whole blocks unless a code is a byte; otherwise consecutive
  /// values of a part are blocks wherever rows end.
  std::int32_t block_rows, block_columns;
  bool by_rows;

  constexpr int value_bits() const noexcept { return packing == Packing::bytes ? 8 : 4; }
};
/// Every format at its place in the enumeration.
inline constexpr std::array<WeightFormatTraits, 7> kWeightFormats = {{
    {WeightFormat::full, "", ValueType::int8, Packing::bytes, ScaleType::f32, 1, 1, false},
    {WeightFormat::int8, "int8", ValueType::int8, Packing::bytes, ScaleType::f32, 1, 64, false},
    {WeightFormat::nf4, "nf4", ValueType::nf4, Packing::first_upper, ScaleType::f32, 1, 64, false},
    {WeightFormat::nf4_dq, "nf4-dq", ValueType::nf4, Packing::first_upper, ScaleType::grouped, 1, 64, false},
    {WeightFormat::mxfp4, "mxfp4", ValueType::e2m1, Packing::first_lower, ScaleType::e8m0, 1, 32, true},
    {WeightFormat::fp8_block, "fp8", ValueType::e4m3, Packing::bytes, ScaleType::f32, 128, 128, true},
    {WeightFormat::int4, "int4", ValueType::int4, Packing::first_lower, ScaleType::bf16, 1, 32, true},
}};
constexpr const WeightFormatTraits& traits_of(WeightFormat format) noexcept {
  return kWeightFormats[static_cast<std::size_t>(format)];
}
constexpr std::string_view to_string(WeightFormat format) noexcept { return traits_of(format).name; }
/// All formats but `full`.
inline constexpr std::array kQuantizedFormats = {WeightFormat::int8,      WeightFormat::nf4,
                                                 WeightFormat::nf4_dq,    WeightFormat::mxfp4,
                                                 WeightFormat::fp8_block, WeightFormat::int4};
/// The quantized format of that name; none if there is none.
constexpr std::optional<WeightFormat> weight_format_named(std::string_view name) noexcept {
  for (const WeightFormat format : kQuantizedFormats)
    if (to_string(format) == name) return format;
  return std::nullopt;
}

}  // namespace strata::kernels

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/threads/thread_pool.h>

// Quantization of the matrices of a frozen base, on the host.
//
// int8 and NF4 (Dettmers et al. 2023, arXiv 2305.14314): the scale of a block is its largest magnitude.
// Values of int8 are multiples of 1/127 of it; those of nf4 are the nearest of 16 levels, with ties to the
// lower one, as bitsandbytes computes them. With double quantization the scales less their mean are quantized
// in groups to 8 bits (the dynamic data type), each to the nearest value.
//
// MXFP4 (OCP Microscaling Formats 1.0, section 6.3): the scale is the power of two of the largest magnitude's
// exponent less 2, which is that of E2M1's largest value; values are rounded to the nearest, ties to even,
// and saturate at 6. FP8 blocks (DeepSeek-V3, arXiv 2412.19437, section 3.3): the scale is the largest
// magnitude / 448, in f32; values are rounded to the nearest E4M3. INT4: the scale is the largest magnitude /
// 7, rounded to bf16; values are rounded to the nearest integer, ties to even.
namespace strata::kernels {

/// Bytes of the codes of `elems` values that begin with a unit, and end with one or with their part.
constexpr std::int64_t code_bytes(const QuantizedMatrix& matrix, std::int64_t elems) noexcept {
  const WeightFormatTraits& f = traits_of(matrix.format);
  if (!f.by_rows) return (elems * f.value_bits() + 7) / 8;
  return elems / matrix.columns * matrix.part(0).line_codes * f.value_bits() / 8;
}

/// Quantizes consecutive values of a part, which begin with a unit (QuantizedUnits) and end with one or with
/// the part: writes code_bytes() of `codes`, and the f32 value of the scale of each block. A block with a
/// value that is not finite dequantizes to NaN.
void quantize_weights(const QuantizedMatrix& matrix, std::span<const float> values, std::uint8_t* codes,
                      float* scales, ThreadPool& pool);
/// Writes the sections behind the values of part `index`, whose scales these are: to `into`, which is where
/// QuantizedPart::scales is, and on. It does not write the bytes between sections.
void write_weight_scales(const QuantizedMatrix& matrix, std::size_t index, std::span<const float> scales,
                         std::byte* into);
/// Quantizes all matrices, f32 [count, rows, columns], to `bytes`, matrix.bytes() of them; those between
/// sections are zeros.
void quantize_matrix(const QuantizedMatrix& matrix, std::span<const float> values, std::span<std::byte> bytes,
                     ThreadPool& pool);
/// Dequantizes elements [first, first + into.size()), row by row, to f32.
void dequantize_matrix(const QuantizedMatrix& matrix, std::span<const std::byte> bytes, std::int64_t first,
                       std::span<float> into);

/// Dequantizes values that begin `skip` values after those of the first unit in `codes`; `scales` are those
/// of the blocks from there on, whatever the format stores.
void dequantize_weights(const QuantizedMatrix& matrix, const std::uint8_t* codes,
                        std::span<const float> scales, std::int64_t skip, std::span<float> into);
/// Dequantizes the scales of blocks [first_block, first_block + into.size()) of a part with double
/// quantization: from their codes, and the scales of the groups of the whole part.
void dequantize_scales(std::span<const std::uint8_t> codes, std::int64_t first_block,
                       std::span<const float> group_scales, std::span<const float> map, float mean,
                       std::span<float> into);
/// The values of the 16 codes of nf4, and those of the 256 codes of scales that are quantized here.
std::span<const float> nf4_levels() noexcept;
std::span<const float> scale_map() noexcept;

}  // namespace strata::kernels

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/threads/thread_pool.h>

// Quantization of the matrices of a frozen base, on the host (Dettmers et al. 2023, arXiv 2305.14314). The
// scale of a block is its largest magnitude. Values of int8 are multiples of 1/127 of it; those of nf4 are
// the nearest of 16 levels, with ties to the lower one, as bitsandbytes computes them. With double
// quantization the scales less their mean are quantized in groups to 8 bits (the dynamic data type), each to
// the nearest value.
namespace strata::kernels {

/// Quantizes consecutive values of a part, which begin at a block: writes `codes` (one byte a value, or one
/// for two) and the f32 scale of each block. A block with a value that is not finite dequantizes to NaN.
void quantize_weights(WeightFormat format, std::span<const float> values, std::uint8_t* codes, float* scales,
                      ThreadPool& pool);
/// Writes the sections behind the values of part `index`, whose scales these are: to `into`, which is where
/// QuantizedPart::scales is, and on. It does not write the bytes between sections.
void write_weight_scales(const QuantizedMatrix& matrix, std::size_t index, std::span<const float> scales,
                         std::byte* into);
/// Quantizes a whole matrix, f32 [rows, columns], to `bytes`, matrix.bytes() of them; those between sections
/// are zeros.
void quantize_matrix(const QuantizedMatrix& matrix, std::span<const float> values, std::span<std::byte> bytes,
                     ThreadPool& pool);
/// Dequantizes elements [first, first + into.size()) of a matrix, row by row, to f32.
void dequantize_matrix(const QuantizedMatrix& matrix, std::span<const std::byte> bytes, std::int64_t first,
                       std::span<float> into);

/// Dequantizes values that begin `skip` values after those of the first block in `codes`; `scales` are those
/// of the blocks from there on.
void dequantize_weights(WeightFormat format, const std::uint8_t* codes, std::span<const float> scales,
                        std::int64_t skip, std::span<float> into);
/// Dequantizes the scales of blocks [first_block, first_block + into.size()) of a part with double
/// quantization: from their codes, and the scales of the groups of the whole part.
void dequantize_scales(std::span<const std::uint8_t> codes, std::int64_t first_block,
                       std::span<const float> group_scales, std::span<const float> map, float mean,
                       std::span<float> into);
/// The values of the 16 codes of nf4, and those of the 256 codes of scales that are quantized here.
std::span<const float> nf4_levels() noexcept;
std::span<const float> scale_map() noexcept;

}  // namespace strata::kernels

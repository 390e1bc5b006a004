#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Block-wise quantisation of weights (Dettmers et al. 2022, arXiv 2110.02861): the scale of a block is its
// largest magnitude in f32, and a quantized value is a fraction of the scale. NF4 has the layout of
// bitsandbytes.

enum class BlockQuantFormat : std::uint8_t {
  nf4,   ///< 16 levels at quantiles of the normal distribution (Dettmers et al. 2023, arXiv 2305.14314), two
         ///< values a byte, the first in its upper half
  int8,  ///< multiples of 1/127 from -127 to 127, two's complement
};

/// The number of values per block must be a multiple of this.
inline constexpr std::int64_t kQuantBlockMultiple = 16;

/// Bytes of `n` quantized values.
constexpr std::int64_t quantized_bytes(BlockQuantFormat format, std::int64_t n) noexcept {
  return format == BlockQuantFormat::nf4 ? (n + 1) / 2 : n;
}

/// A block is `block` consecutive values, regardless of the tensor's shape; the last block may be shorter. A
/// block with a value that is not finite has the scale NaN and dequantizes to NaN; a block of zeros has the
/// scale 0.
struct BlockQuantArgs {
  TensorView x;          ///< stored dtype (embedding.h) [...], n values
  TensorView quantized;  ///< u8 [quantized_bytes(format, n)]
  TensorView scales;     ///< f32 [n / block, rounded up]
  BlockQuantFormat format = BlockQuantFormat::nf4;
  std::int64_t block = 64;
};

/// Writes `quantized` and `scales` from x, with each value rounded to the nearest level of its block. Ties go
/// to the lower level in NF4 and to the even one in int8.
Status quantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& args);
void quantize_blocks_host(const BlockQuantArgs& args, ThreadPool& pool);

/// Writes the dequantized values to x, rounded once if x is 16-bit.
Status dequantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& args);
void dequantize_blocks_host(const BlockQuantArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

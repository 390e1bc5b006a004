#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Weights in few bits: codes, and of each block of values the largest magnitude, in f32, of which a code is a
// share (block-wise quantisation, Dettmers et al. 2022, arXiv 2110.02861). NF4 is laid out as in
// bitsandbytes.

enum class BlockQuantFormat : std::uint8_t {
  nf4,   ///< 16 levels at quantiles of the normal distribution (Dettmers et al. 2023, arXiv 2305.14314), two
         ///< values a byte, the first in its upper half
  int8,  ///< 127ths from -127 to 127, two's complement
};

/// Values of a block are a multiple of this.
inline constexpr std::int64_t kQuantBlockMultiple = 16;

/// Bytes of `n` values' codes.
constexpr std::int64_t quantized_bytes(BlockQuantFormat format, std::int64_t n) noexcept {
  return format == BlockQuantFormat::nf4 ? (n + 1) / 2 : n;
}

/// Blocks are of values one after another, whatever the shape; the last may be shorter. A block with a value
/// that is not finite has the scale NaN, and all of it is read as NaN; one of zeros has the scale 0.
struct BlockQuantArgs {
  TensorView x;          ///< kept (embedding.h) [...], n values
  TensorView quantized;  ///< u8 [quantized_bytes(format, n)]
  TensorView scales;     ///< f32 [n / block, rounded up]
  BlockQuantFormat format = BlockQuantFormat::nf4;
  std::int64_t block = 64;
};

/// codes, scales = of x: each value the nearest that its block's scale allows; of two as near, NF4 takes the
/// lower and int8 the even.
Status quantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& args);
void quantize_blocks_host(const BlockQuantArgs& args, ThreadPool& pool);

/// x = what codes and scales stand for, rounded once where it is kept in 16 bits.
Status dequantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& args);
void dequantize_blocks_host(const BlockQuantArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

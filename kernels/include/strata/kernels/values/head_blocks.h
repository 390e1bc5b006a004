#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/runtime/dtype.h>

namespace strata::kernels {

/// Which rows of logits exist at a time where a head is fused with its loss. The results differ by rounding:
/// the gradient of the weight is a sum over blocks.
enum class HeadBlocks : std::uint8_t {
  host,    ///< about 32 MiB of f32 logits, which stay close to the caches
  device,  ///< at least 1,024 rows, since each block reads the weight and adds to all of its gradient
};

/// Rows of a block of [rows, vocab] logits. It depends on nothing else, so the bits do not depend on the
/// memory at hand.
constexpr std::int64_t head_block_rows(std::int64_t rows, std::int64_t vocab, HeadBlocks blocks) noexcept {
  constexpr std::int64_t kLogits = std::int64_t{8} << 20, kMultiple = 64;
  const std::int64_t least = blocks == HeadBlocks::device ? 1024 : kMultiple;
  return std::min(rows, std::max(kLogits / std::max<std::int64_t>(vocab, 1) / kMultiple * kMultiple, least));
}

/// Rows whose gradients with respect to the logits exist at a time, a multiple of the rows of a block. They
/// are stored in `dtype`, and in place of f32 logits if that is f32. On the host, 16-bit gradients of four
/// blocks are multiplied at once, since each such GEMM reads the weight, and reads and writes its gradient.
constexpr std::int64_t head_gradient_rows(std::int64_t rows, std::int64_t vocab, DType dtype,
                                          HeadBlocks blocks) noexcept {
  const std::int64_t block = head_block_rows(rows, vocab, blocks);
  const std::int64_t n_blocks = blocks == HeadBlocks::host && dtype != DType::f32 ? 4 : 1;
  return std::min(rows, n_blocks * block);
}

}  // namespace strata::kernels

#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace strata::kernels

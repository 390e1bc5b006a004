#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::kernels::detail {

/// Bytes of a block's f32 logits, rounded up to 64 so that the memory after them is aligned.
constexpr std::size_t logits_bytes(std::int64_t rows, std::int64_t vocab) noexcept {
  return (static_cast<std::size_t>(rows * vocab) * sizeof(float) + 63) / 64 * 64;
}

}  // namespace strata::kernels::detail

#pragma once

#include <algorithm>
#include <cstdint>

namespace strata::kernels::detail {

/// This many (row, key head) pairs are processed at a time, each in its own slot of the workspace.
constexpr std::int64_t cached_attention_scratch_slots(std::int64_t rows, std::int64_t kv_heads) noexcept {
  return std::min<std::int64_t>(rows * kv_heads, 32);
}

/// A GPU has the scores of all heads of this many rows in the workspace at once: of 256 heads in all, which
/// occupy it, or of one row.
constexpr std::int64_t cached_attention_rows_at_once(std::int64_t rows, std::int64_t heads) noexcept {
  return std::clamp<std::int64_t>(256 / std::max<std::int64_t>(heads, 1), 1, std::max<std::int64_t>(rows, 1));
}

}  // namespace strata::kernels::detail

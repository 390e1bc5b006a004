#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/kernels/attention.h>

namespace strata::kernels::detail {

inline constexpr std::int64_t kQueryRows = 64;  // a block of scores is kQueryRows x seq

/// The unit of parallel work is one (batch, key head) with all its query heads, so that the sums of dk and dv
/// have one order. This many are worked on at a time, each with its own part of the workspace: a bound on
/// both.
constexpr std::int64_t attention_slots(std::int64_t pairs) noexcept {
  return std::min<std::int64_t>(pairs, 32);
}
constexpr std::int64_t attention_pairs(std::int64_t tokens, const AttentionHeads& shape) noexcept {
  return shape.seq > 0 ? tokens / shape.seq * shape.kv_heads : 0;
}
/// Floats of one slot: `matrices` blocks of scores, and a row of position biases.
constexpr std::int64_t attention_slot_floats(const AttentionHeads& shape, int matrices) noexcept {
  return matrices * std::min(kQueryRows, shape.seq) * shape.seq + (shape.alibi ? shape.seq : 0);
}

}  // namespace strata::kernels::detail

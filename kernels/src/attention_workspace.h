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
/// Where the parts of a slot's scratch begin, in floats.
struct AttentionSlot {
  std::int64_t heads;  ///< after the blocks of scores: parts of a head, widened
  std::int64_t bias;   ///< a row of position biases
  std::int64_t floats;
};
/// `matrices` blocks of scores; `parts` [seq, d] matrices of a head, where they are kept in 16 bits.
constexpr AttentionSlot attention_slot(const AttentionHeads& shape, int matrices, int parts, DType dtype,
                                       std::int64_t d) noexcept {
  const std::int64_t heads = matrices * std::min(kQueryRows, shape.seq) * shape.seq;
  const std::int64_t bias = heads + (dtype == DType::f32 ? 0 : parts * shape.seq * d);
  return {heads, bias, bias + (shape.alibi ? shape.seq : 0)};
}
constexpr AttentionSlot attention_forward_slot(const AttentionHeads& shape, DType dtype,
                                               std::int64_t d) noexcept {
  return attention_slot(shape, 1, 4, dtype, d);  // q, k, v, out
}
constexpr AttentionSlot attention_backward_slot(const AttentionHeads& shape, DType dtype,
                                                std::int64_t d) noexcept {
  return attention_slot(shape, 2, 7, dtype, d);  // q, k, v, dout, dq, dk, dv
}

}  // namespace strata::kernels::detail

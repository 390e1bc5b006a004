#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/kernels/attention_heads.h>
#include <strata/runtime/dtype.h>

namespace strata::kernels::detail {

inline constexpr std::int64_t kQueryRows = 64;  // a block of scores is kQueryRows x seq

/// The unit of parallel work is one (batch, key head) pair with all its query heads, so that dk and dv are
/// summed in one order. This many pairs are processed at a time, each in its own slot of the workspace, which
/// bounds the workspace.
constexpr std::int64_t attention_slots(std::int64_t pairs) noexcept {
  return std::min<std::int64_t>(pairs, 32);
}
constexpr std::int64_t attention_pairs(std::int64_t tokens, const AttentionHeads& shape) noexcept {
  return shape.seq > 0 ? tokens / shape.seq * shape.kv_heads : 0;
}
/// Layout of a workspace slot, in floats.
struct AttentionSlot {
  std::int64_t heads;   ///< offset of the heads in f32, after the blocks of scores
  std::int64_t bias;    ///< offset of the row of ALiBi biases
  std::int64_t floats;  ///< size of the slot
};
/// `matrices` is the number of blocks of scores, `parts` the number of [seq, d] matrices that are converted
/// to f32 if the stored dtype is 16-bit.
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

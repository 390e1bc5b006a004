#pragma once

#include <strata/graph/ops.h>
#include <strata/runtime/backend/backend.h>

// What the ops have in common whose weight has the matrices of some experts, and which write the rows of
// these alone.

namespace strata::detail {

/// Whether `offsets` are those of experts to which the `n` from `first` on belong.
inline bool has_experts(const ValueInfo* offsets, std::int64_t n, std::int64_t first) {
  if (offsets == nullptr || offsets->dtype != DType::i32 || offsets->shape.rank != 1) return false;
  return first >= 0 && first + n < offsets->shape.dim(0);
}
/// The rows that `n` of all experts have if all have the same number.
inline double rows_of_block(const ValueInfo* rows, const ValueInfo* offsets, std::int64_t n) {
  return static_cast<double>(rows->shape.dim(0)) * static_cast<double>(n) /
         static_cast<double>(offsets->shape.dim(0) - 1);
}
/// The rows of other experts, if the memory of the block before is not that of this one.
inline Status keep_other_rows(Backend& backend, Stream& stream, const TensorView& into,
                              const TensorView& before) {
  if (before.data == nullptr || before.data == into.data) return {};
  return backend.copy_async({into.data, into.bytes()}, {before.data, before.bytes()}, stream);
}

}  // namespace strata::detail

#pragma once

#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels::detail {

/// Elements of a head in rows of qkv, which are query heads | key heads | value heads; 0 for head counts that
/// check_heads() refuses.
template <class Heads>
std::int64_t head_dim(const TensorView& qkv, const Heads& heads) {
  const std::int64_t parts = heads.heads + 2 * heads.kv_heads;
  return parts > 0 ? dispatch::row_length(qkv) / parts : 0;
}

}  // namespace strata::kernels::detail

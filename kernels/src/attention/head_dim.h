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

/// The same for the arguments of attention, whose keys and values may be in a tensor of their own.
template <class Args>
std::int64_t head_dim_of(const Args& a) {
  if (!dispatch::is_present(a.kv)) return head_dim(a.qkv, a.shape);
  return a.shape.kv_heads > 0 ? dispatch::row_length(a.kv) / (2 * a.shape.kv_heads) : 0;
}
/// The number of sequences.
template <class Args>
std::int64_t sequences_of(const Args& a) {
  const std::int64_t tokens = a.shape.queries.tokens(a.shape.seq);
  return tokens > 0 ? dispatch::row_count(a.qkv) / tokens : 0;
}

}  // namespace strata::kernels::detail

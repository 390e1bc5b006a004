#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Attention of single tokens over the keys and values of their sequences so far, which a cache holds.
struct CachedAttentionShape {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  ///< divides heads; query head i reads key head i / (heads / kv_heads)
  bool alibi = false;         ///< adds alibi_slope(head) * (key - query), as attention_forward does
  std::int64_t window = 0;    ///< these three as in AttentionHeads
  float softcap = 0;
  float scale = 0;
};

/// For every row: its keys and values join the cache at its place, then
/// out = softmax(q k^T / sqrt(d)) v over places 0 (or where its window begins) .. its own of its sequence
/// (Vaswani et al. 2017). All rows are stored before any is mixed, so tokens of one sequence may be in one
/// call, in any order. A row's bits depend on its query, its place and its sequence's cache alone: not on the
/// other rows, nor on threads, nor on the instruction set.
struct CachedAttentionArgs {
  TensorView qkv;        ///< f32 [R, (heads + 2 kv_heads) d], rows q | k | v
  TensorView positions;  ///< i32, R values in [0, capacity): the place in the sequence
  TensorView slots;      ///< i32, R values in [0, sequences), or -1: no token, and its row of out is 0
  TensorView keys;       ///< f32 [sequences, kv_heads, capacity, d]: read, and written at the rows' places
  TensorView values;     ///< as keys
  TensorView out;        ///< f32 [R, heads d], written
  CachedAttentionShape shape;
  BufferView workspace;  ///< cached_attention_workspace_bytes(R, capacity, shape), 4-aligned
};
std::size_t cached_attention_workspace_bytes(std::int64_t rows, std::int64_t capacity,
                                             const CachedAttentionShape& shape) noexcept;
/// Errors: `invalid` for shapes. Places and slots are values, which the caller has checked: the host asserts.
Status cached_attention_async(Backend& backend, Stream& stream, const CachedAttentionArgs& args);
void cached_attention_host(const CachedAttentionArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

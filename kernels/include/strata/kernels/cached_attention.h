#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Attention of single tokens (decoding) over the keys and values of their sequences so far, which are in a
/// KV cache.
struct CachedAttentionShape {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  ///< divides heads; query head i reads key head i / (heads / kv_heads)
  bool alibi = false;         ///< adds alibi_slope(head) * (key - query), as attention_forward does
  std::int64_t window = 0;    ///< window, softcap and scale are as in AttentionHeads
  float softcap = 0;
  float scale = 0;
  std::int64_t alibi_heads = 0, alibi_first = 0;  ///< as in AttentionHeads
  bool is_stored = false;  ///< keys and values have those of the rows already, and no other is stored
};

/// Stores every row's keys and values in the cache at the row's position, then computes for every row
/// out = softmax(q k^T / sqrt(d)) v over the positions of its sequence from 0 (or the start of its window) to
/// its own (Vaswani et al. 2017). All rows are stored before attention is computed, so one call may contain
/// several tokens of a sequence, in any order. Scores, weights and sums are f32. The bits of a row depend
/// only on its query, its position and its sequence's cache, and not on other rows, threads or the
/// instruction set. On the host they are those of attention_forward, in a build with oneDNN and on a CPU with
/// AVX2.
struct CachedAttentionArgs {
  TensorView qkv;        ///< stored dtype (embedding.h) [R, (heads + 2 kv_heads) d], rows q | k | v
  TensorView positions;  ///< i32, R values in [0, capacity): the position in the sequence
  TensorView slots;      ///< i32, R values in [0, sequences), or -1 for no token, whose row of out is 0
  TensorView keys;       ///< as qkv, [sequences, kv_heads, capacity, d]: read, and written at the rows'
                         ///< positions
  TensorView values;     ///< as keys
  TensorView out;        ///< as qkv, [R, heads d], written
  CachedAttentionShape shape;
  BufferView workspace;   ///< cached_attention_workspace_bytes(R, capacity, d, shape), 4-aligned
  TensorView sinks = {};  ///< as in attention_forward
};
std::size_t cached_attention_workspace_bytes(std::int64_t rows, std::int64_t capacity, std::int64_t head_dim,
                                             const CachedAttentionShape& shape) noexcept;
/// Errors: `invalid` for wrong shapes. The caller must have checked the values of positions and slots, which
/// the host asserts.
Status cached_attention_async(Backend& backend, Stream& stream, const CachedAttentionArgs& args);
void cached_attention_host(const CachedAttentionArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

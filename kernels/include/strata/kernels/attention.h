#pragma once

#include <cstdint>

#include <strata/kernels/attention_heads.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The backend that such heads use on a GPU and in a build that have shape.backend: shape.backend if it
/// supports the heads, otherwise mma. `packed`: doc_start is given; `sinks`: they are.
AttentionBackend effective_attention_backend(const AttentionHeads& shape, std::int64_t tokens, DType dtype,
                                             std::int64_t head_dim, bool packed, bool backward,
                                             bool sinks = false) noexcept;

/// Returns whether the current GPU has compute capability 9.0 and this build has kernels for 9.0a.
bool cuda_has_wgmma();

/// out = softmax(q k^T / sqrt(d)) v for each head (Vaswani et al. 2017). The host processes blocks of 64
/// query rows, so no seq x seq matrix is stored; the backward recomputes the probabilities from lse. If qkv
/// is 16-bit, the host converts a head to f32 first: scores, probabilities and sums over query heads are f32,
/// and out or dqkv is rounded once.
struct AttentionForwardArgs {
  TensorView qkv;        ///< f32, bf16 or f16 [..., (heads + 2 kv_heads) d], T rows; T is a multiple of seq
  TensorView out;        ///< as qkv, or f32 if kv is given, [..., heads d], T rows, written
  TensorView lse;        ///< f32, T * heads values as [batch, heads, seq], written
  TensorView doc_start;  ///< i32, T values: first position in its sequence that a token sees; rank 0: all
  AttentionHeads shape;
  BufferView workspace;  ///< attention_forward_workspace_bytes(T, shape, dtype, d), 4-aligned (cudnn: 256)
  /// If given, keys and values are here and qkv has queries alone: as qkv, rows k | v of the tokens
  /// shape.keys, while qkv has those of shape.queries; T in the sizes of workspaces is that of whole
  /// sequences, in all others that of the queries. A query that sees no key has an output of 0 and an lse of
  /// -infinity.
  TensorView kv = {};
  /// As qkv, a score of each head that joins the sum of the softmax, and has no value (gpt-oss); rank 0:
  /// none. lse is that of the keys and the sink.
  TensorView sinks = {};
};
/// The first overload is for f32 qkv, the second for any dtype with heads of `head_dim` elements.
std::size_t attention_forward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept;
std::size_t attention_forward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                              std::int64_t head_dim) noexcept;
Status attention_forward_async(Backend& backend, Stream& stream, const AttentionForwardArgs& args);
void attention_forward_host(const AttentionForwardArgs& args, ThreadPool& pool);

struct AttentionBackwardArgs {
  TensorView qkv;        ///< as in the forward
  TensorView out;        ///< from the forward
  TensorView lse;        ///< from the forward
  TensorView dout;       ///< as out
  TensorView doc_start;  ///< as in the forward
  TensorView dqkv;       ///< as qkv, written
  AttentionHeads shape;
  BufferView workspace;  ///< attention_backward_workspace_bytes(T, shape, dtype, d), 4-aligned (cudnn: 256)
  TensorView kv = {};    ///< as in the forward
  TensorView dkv = {};   ///< as kv, written, if kv is given
  /// f32, as lse: the dot products of the rows of dout with the whole output, where lse and dout are those of
  /// more keys than are here (attention_delta); rank 0: computed from the keys that are here.
  TensorView delta = {};
  TensorView sinks = {};  ///< as in the forward
  /// f32, as lse, written: the sums over keys of p dp, which are those products, without the rounding of a
  /// 16-bit output; rank 0: they are not wanted. Not of queries that see no key.
  TensorView delta_out = {};
};
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept;
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                               std::int64_t head_dim) noexcept;
Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& args);
void attention_backward_host(const AttentionBackwardArgs& args, ThreadPool& pool);

/// The gradient of sinks: minus the sum over rows of a sink's probability times delta, in f64.
struct AttentionBackwardSinksArgs {
  TensorView lse;        ///< from the forward
  TensorView delta;      ///< from the backward: delta_out
  TensorView sinks;      ///< stored dtype, a score of each head
  TensorView dsinks;     ///< f32 or as sinks, written; 16-bit only if it is not accumulated into
  std::int64_t seq = 1;  ///< rows of a sequence
  bool accumulate = false;
};
Status attention_backward_sinks_async(Backend& backend, Stream& stream,
                                      const AttentionBackwardSinksArgs& args);
void attention_backward_sinks_host(const AttentionBackwardSinksArgs& args, ThreadPool& pool);

// Attention on keys that come part by part (Liu et al. 2023, arXiv 2310.01889): the outputs of parts are f32.

/// Adds a part: out and lse of two disjoint sets of keys become those of their union. A part with an lse of
/// -infinity has no keys.
struct MergeAttentionArgs {
  TensorView out_a, lse_a;  ///< f32 [..., heads d], T rows; f32 [sequences, heads, queries]
  TensorView out_b, lse_b;  ///< the same
  TensorView out, lse;      ///< the same, written; may be out_a and lse_a
  std::int64_t heads = 1, queries = 1;
};
Status merge_attention_async(Backend& backend, Stream& stream, const MergeAttentionArgs& args);
void merge_attention_host(const MergeAttentionArgs& args, ThreadPool& pool);

/// The dot products of the rows of the output and of its gradient, head by head: what the softmax's
/// derivative subtracts.
struct AttentionDeltaArgs {
  TensorView out;    ///< f32 [..., heads d], T rows
  TensorView dout;   ///< stored dtype, the same rows
  TensorView delta;  ///< f32 [sequences, heads, queries], written
  std::int64_t heads = 1, queries = 1;
};
Status attention_delta_async(Backend& backend, Stream& stream, const AttentionDeltaArgs& args);
void attention_delta_host(const AttentionDeltaArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

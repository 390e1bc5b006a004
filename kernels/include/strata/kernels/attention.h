#pragma once

#include <cstdint>
#include <string_view>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// What multiplies the heads on a GPU. Results differ, as roundings do.
enum class AttentionBackend : std::uint8_t {
  mma,  ///< mma.sync
  /// Of four warps: wgmma, for heads of 64 or 128 values in 16 bits where cuda_has_wgmma(), without a
  /// soft cap.
  wgmma,
  /// Its fused attention, where cudnn_version() has it: heads of 16 to 128 values (8 n) in 16 bits, without
  /// ALiBi, documents, a window, a soft cap or a scale of its own. Backward rounds each query head's part of
  /// a key's gradient, and keeps two bytes a score; where that were more than 2 GiB it is as of warps.
  cudnn,
};

/// As train.attention_backend names it: mma, wgmma, cudnn.
std::string_view to_string(AttentionBackend backend) noexcept;

/// How heads share a row and which keys a query sees. A row of qkv is q | k | v: `heads` query heads, then
/// `kv_heads` key heads, then as many value heads, all of d elements. Query head i reads key head
/// i / (heads / kv_heads) (grouped queries: Ainslie et al. 2023).
struct AttentionHeads {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  ///< divides heads
  std::int64_t seq = 0;
  bool causal = true;
  bool alibi = false;  ///< adds slope(head) * (key - query) to a score (Press et al. 2022); causal only
  AttentionBackend backend =
      AttentionBackend::mma;  ///< where it takes such heads; others are as of warps, and a host's
  std::int64_t window = 0;    ///< a query sees so many keys up to its own; 0: all before it. Causal only
  float softcap = 0;          ///< scores s become softcap tanh(s / softcap); 0: they stay. Not with ALiBi
  float scale = 0;            ///< what q k^T is multiplied by; 0: 1 / sqrt(d)
};
/// The factor of q k^T for heads of `head_dim` elements.
float attention_scale(const AttentionHeads& shape, std::int64_t head_dim) noexcept;
/// The slope of a head: powers of 2^(-8 / n) for n = the greatest power of two <= heads, then odd powers of
/// the next.
float alibi_slope(std::int64_t head, std::int64_t heads) noexcept;

/// What multiplies such heads where shape.backend is asked for, on a GPU and in a build that have it: that,
/// or warps. `packed`: documents are given.
AttentionBackend effective_attention_backend(const AttentionHeads& shape, std::int64_t tokens, DType dtype,
                                             std::int64_t head_dim, bool packed, bool backward) noexcept;

/// Whether the current GPU has compute capability 9.0, and this build has kernels for 9.0a.
bool cuda_has_wgmma();

/// out = softmax(q k^T / sqrt(d)) v by head (Vaswani et al. 2017). Works on blocks of 64 query rows, so no
/// seq x seq matrix is kept; lse is what the backward rebuilds the probabilities from. Where qkv is kept in
/// 16 bits, a head is widened first: scores, probabilities and sums over query heads are f32, and out or dqkv
/// is rounded once.
struct AttentionForwardArgs {
  TensorView qkv;        ///< f32, bf16 or f16 [..., (heads + 2 kv_heads) d], T rows; T is a multiple of seq
  TensorView out;        ///< as qkv, [..., heads d], T rows, written
  TensorView lse;        ///< f32, T * heads values as [batch, heads, seq], written
  TensorView doc_start;  ///< i32, T values: the first place in its row of seq that a token sees; rank 0: all
  AttentionHeads shape;
  BufferView workspace;  ///< attention_forward_workspace_bytes(T, shape, dtype, d), 4-aligned; of cudnn: 256
};
/// For qkv in f32, and for any dtype with heads of `head_dim` elements.
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
  BufferView workspace;  ///< attention_backward_workspace_bytes(T, shape, dtype, d), 4-aligned; of cudnn: 256
};
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept;
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                               std::int64_t head_dim) noexcept;
Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& args);
void attention_backward_host(const AttentionBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

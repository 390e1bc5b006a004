#pragma once

#include <cstdint>

#include <strata/kernels/attention_heads.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The backend that such heads use on a GPU and in a build that have shape.backend: shape.backend if it
/// supports the heads, otherwise mma. `packed`: doc_start is given.
AttentionBackend effective_attention_backend(const AttentionHeads& shape, std::int64_t tokens, DType dtype,
                                             std::int64_t head_dim, bool packed, bool backward) noexcept;

/// Returns whether the current GPU has compute capability 9.0 and this build has kernels for 9.0a.
bool cuda_has_wgmma();

/// out = softmax(q k^T / sqrt(d)) v for each head (Vaswani et al. 2017). The host processes blocks of 64
/// query rows, so no seq x seq matrix is stored; the backward recomputes the probabilities from lse. If qkv
/// is 16-bit, the host converts a head to f32 first: scores, probabilities and sums over query heads are f32,
/// and out or dqkv is rounded once.
struct AttentionForwardArgs {
  TensorView qkv;        ///< f32, bf16 or f16 [..., (heads + 2 kv_heads) d], T rows; T is a multiple of seq
  TensorView out;        ///< as qkv, [..., heads d], T rows, written
  TensorView lse;        ///< f32, T * heads values as [batch, heads, seq], written
  TensorView doc_start;  ///< i32, T values: first position in its sequence that a token sees; rank 0: all
  AttentionHeads shape;
  BufferView workspace;  ///< attention_forward_workspace_bytes(T, shape, dtype, d), 4-aligned (cudnn: 256)
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
};
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept;
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                               std::int64_t head_dim) noexcept;
Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& args);
void attention_backward_host(const AttentionBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

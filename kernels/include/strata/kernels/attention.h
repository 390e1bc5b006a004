#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// out = softmax(q k^T / sqrt(d)) v by head (Vaswani et al. 2017), d = h / heads. Works on blocks of 64 query
/// rows, so no seq x seq matrix is kept; lse is what the backward rebuilds the probabilities from.
struct AttentionForwardArgs {
  TensorView qkv;  ///< f32 [..., 3h], T rows, a row is q | k | v; T is a multiple of seq
  TensorView out;  ///< f32 [..., h], T rows, written
  TensorView lse;  ///< f32, T * heads values as [batch, heads, seq], written
  std::int64_t heads = 1;
  std::int64_t seq = 0;
  bool causal = true;
  BufferView workspace;  ///< attention_forward_workspace_bytes(T, heads, seq), 4-aligned
};
std::size_t attention_forward_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                              std::int64_t seq) noexcept;
Status attention_forward_async(Backend& backend, Stream& stream, const AttentionForwardArgs& args);
void attention_forward_host(const AttentionForwardArgs& args, ThreadPool& pool);

struct AttentionBackwardArgs {
  TensorView qkv;   ///< as in the forward
  TensorView out;   ///< from the forward
  TensorView lse;   ///< from the forward
  TensorView dout;  ///< f32 [..., h], T rows
  TensorView dqkv;  ///< f32, as qkv, written
  std::int64_t heads = 1;
  std::int64_t seq = 0;
  bool causal = true;
  BufferView workspace;  ///< attention_backward_workspace_bytes(T, heads, seq), 4-aligned
};
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                               std::int64_t seq) noexcept;
Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& args);
void attention_backward_host(const AttentionBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

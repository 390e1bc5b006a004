#include <strata/kernels/attention.h>

#include <algorithm>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "attention/attention_workspace.h"
#include "attention/cudnn_attention_support.h"
#include "cuda/attention/launches.h"

namespace strata::kernels {
namespace {

std::size_t workspace_bytes(std::int64_t tokens, const AttentionHeads& shape,
                            const detail::AttentionSlot& slot) noexcept {
  const std::int64_t slots = detail::attention_slots(detail::attention_pairs(tokens, shape));
  return static_cast<std::size_t>(slots * slot.floats) * sizeof(float);
}

/// Elements of a head; 0 for invalid head counts, which check() rejects.
template <class Args>
std::int64_t head_dim(const Args& a) {
  const std::int64_t parts = a.shape.heads + 2 * a.shape.kv_heads;
  return parts > 0 ? ops::row_length(a.qkv) / parts : 0;
}

// Workspace of cuDNN's attention, or 0 if it does not compute these heads.
std::size_t cudnn_workspace_bytes(const detail::CudnnAttention& a, const AttentionHeads& shape) noexcept {
  return detail::cudnn_supports(a, shape) ? static_cast<std::size_t>(detail::cudnn_workspace_bytes(a)) : 0;
}

template <class Args>
ops::Check check(const char* op, const Args& a) {
  const AttentionHeads& s = a.shape;
  const std::int64_t rows = ops::row_count(a.qkv);
  const std::int64_t width = ops::row_length(a.qkv);
  const bool heads_fit = s.heads >= 1 && s.kv_heads >= 1 && s.heads % s.kv_heads == 0;
  const std::int64_t parts = heads_fit ? s.heads + 2 * s.kv_heads : 1;
  ops::Check check(op, "qkv", a.qkv);
  check.rows("qkv", a.qkv, rows, width)
      .require(heads_fit, s.heads, " query heads must be a positive multiple of ", s.kv_heads, " key heads")
      .require(width % parts == 0, "rows of ", width, " are not a multiple of ", s.heads, " + 2 * ",
               s.kv_heads, " heads")
      .require(s.seq >= 1 && rows % s.seq == 0, rows, " tokens are not a multiple of seq ", s.seq)
      .require(s.causal || (!s.alibi && !ops::is_present(a.doc_start)),
               "ALiBi and packed documents require causal attention")
      .require(s.window >= 0 && (s.window == 0 || s.causal), "window is ", s.window,
               "; it must be 0 or more, and above 0 only in causal attention")
      .require(s.softcap >= 0 && (s.softcap == 0 || !s.alibi), "softcap is ", s.softcap,
               "; it must be 0 or more, and above 0 only without ALiBi")
      .require(s.scale >= 0, "scale is ", s.scale, "; it must be 0 or more")
      .rows("out", a.out, rows, width / parts * s.heads)
      .elements("lse", a.lse, DType::f32, rows * s.heads);
  if (ops::is_present(a.doc_start)) check.elements("doc_start", a.doc_start, DType::i32, rows);
  return check;
}

}  // namespace

AttentionBackend effective_attention_backend(const AttentionHeads& shape, std::int64_t tokens, DType dtype,
                                             std::int64_t head_dim, bool packed, bool backward) noexcept {
  const bool use_wgmma = shape.backend == AttentionBackend::wgmma && size_of(dtype) == 2 &&
                         (head_dim == 64 || head_dim == 128) && shape.softcap == 0;
  const bool use_cudnn =
      !packed &&
      detail::cudnn_supports(detail::cudnn_attention(backward, tokens, shape, dtype, head_dim), shape);
  return use_wgmma || use_cudnn ? shape.backend : AttentionBackend::mma;
}

std::size_t attention_forward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept {
  return attention_forward_workspace_bytes(tokens, shape, DType::f32, 0);
}
std::size_t attention_forward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                              std::int64_t head_dim) noexcept {
  return std::max(
      workspace_bytes(tokens, shape, detail::attention_forward_slot(shape, dtype, head_dim)),
      cudnn_workspace_bytes(detail::cudnn_attention(false, tokens, shape, dtype, head_dim), shape));
}
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept {
  return attention_backward_workspace_bytes(tokens, shape, DType::f32, 0);
}
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                               std::int64_t head_dim) noexcept {
  // On CUDA the workspace has one f32 for each token and head.
  return std::max(
      {workspace_bytes(tokens, shape, detail::attention_backward_slot(shape, dtype, head_dim)),
       static_cast<std::size_t>(tokens * shape.heads) * sizeof(float),
       cudnn_workspace_bytes(detail::cudnn_attention(true, tokens, shape, dtype, head_dim), shape)});
}

Status attention_forward_async(Backend& backend, Stream& stream, const AttentionForwardArgs& a) {
  STRATA_TRY(check("attention_forward", a)
                 .workspace(a.workspace, attention_forward_workspace_bytes(ops::row_count(a.qkv), a.shape,
                                                                           a.qkv.dtype, head_dim(a)))
                 .status());
  constexpr ops::OpImpl<AttentionForwardArgs> op = {"attention_forward", &attention_forward_host,
                                                    &cuda::attention_forward};
  return ops::enqueue(backend, stream, op, a, {a.qkv, a.doc_start}, {a.out, a.lse}, a.workspace);
}

Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.qkv);
  STRATA_TRY(
      check("attention_backward", a)
          .rows("dout", a.dout, rows, ops::row_length(a.out))
          .rows("dqkv", a.dqkv, rows, ops::row_length(a.qkv))
          .workspace(a.workspace, attention_backward_workspace_bytes(rows, a.shape, a.qkv.dtype, head_dim(a)))
          .status());
  constexpr ops::OpImpl<AttentionBackwardArgs> op = {"attention_backward", &attention_backward_host,
                                                     &cuda::attention_backward};
  return ops::enqueue(backend, stream, op, a, {a.qkv, a.out, a.lse, a.dout, a.doc_start}, {a.dqkv},
                      a.workspace);
}

}  // namespace strata::kernels

#include <strata/kernels/attention.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

#include "attention/attention_workspace.h"
#include "attention/cudnn_attention_support.h"
#include "attention/check_heads.h"
#include "attention/head_dim.h"

namespace strata::kernels {
namespace {

std::size_t workspace_bytes(std::int64_t tokens, const AttentionHeads& shape,
                            const detail::AttentionSlot& slot) noexcept {
  const std::int64_t slots = detail::attention_slots(detail::attention_pairs(tokens, shape));
  return static_cast<std::size_t>(slots * slot.floats) * sizeof(float);
}

// Workspace of cuDNN's attention, or 0 if it does not compute these heads.
std::size_t cudnn_workspace_bytes(const detail::CudnnAttention& a, const AttentionHeads& shape) noexcept {
  return detail::cudnn_supports(a, shape) ? static_cast<std::size_t>(detail::cudnn_workspace_bytes(a)) : 0;
}

template <class Args>
dispatch::Check check(const char* op, const Args& a) {
  const AttentionHeads& s = a.shape;
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const std::int64_t width = dispatch::row_length(a.qkv);
  dispatch::Check check(op, "qkv", a.qkv);
  detail::check_heads(check.rows("qkv", a.qkv, rows, width), s, width)
      .require(s.seq >= 1 && rows % s.seq == 0, rows, " tokens are not a multiple of seq ", s.seq)
      .require(s.causal || (!s.alibi && !dispatch::is_present(a.doc_start)),
               "ALiBi and packed documents require causal attention")
      .require(s.window >= 0 && (s.window == 0 || s.causal), "window is ", s.window,
               "; it must be 0 or more, and above 0 only in causal attention")
      .require(s.softcap >= 0 && (s.softcap == 0 || !s.alibi), "softcap is ", s.softcap,
               "; it must be 0 or more, and above 0 only without ALiBi")
      .require(s.scale >= 0, "scale is ", s.scale, "; it must be 0 or more")
      .rows("out", a.out, rows, detail::head_dim(a.qkv, s) * s.heads)
      .elements("lse", a.lse, DType::f32, rows * s.heads);
  if (dispatch::is_present(a.doc_start)) check.elements("doc_start", a.doc_start, DType::i32, rows);
  return check;
}

}  // namespace

STRATA_OP(attention_forward, AttentionForwardArgs);
STRATA_OP(attention_backward, AttentionBackwardArgs);

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
                 .workspace(a.workspace,
                            attention_forward_workspace_bytes(dispatch::row_count(a.qkv), a.shape,
                                                              a.qkv.dtype, detail::head_dim(a.qkv, a.shape)))
                 .status());
  return dispatch::enqueue(backend, stream, attention_forward_op, a, {a.qkv, a.doc_start}, {a.out, a.lse},
                           a.workspace);
}

Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  STRATA_TRY(check("attention_backward", a)
                 .rows("dout", a.dout, rows, dispatch::row_length(a.out))
                 .rows("dqkv", a.dqkv, rows, dispatch::row_length(a.qkv))
                 .workspace(a.workspace, attention_backward_workspace_bytes(rows, a.shape, a.qkv.dtype,
                                                                            detail::head_dim(a.qkv, a.shape)))
                 .status());
  return dispatch::enqueue(backend, stream, attention_backward_op, a,
                           {a.qkv, a.out, a.lse, a.dout, a.doc_start}, {a.dqkv}, a.workspace);
}

}  // namespace strata::kernels

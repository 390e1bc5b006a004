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
  return detail::cudnn_supports(a, shape)
             ? static_cast<std::size_t>(detail::cudnn_workspace_bytes(a, detail::cudnn_parts(a)))
             : 0;
}

bool fit(const TokenRuns& runs, std::int64_t seq) {
  if (runs.n < 0 || runs.n > 2) return false;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < runs.n; ++i) {
    if (runs.position[i] < end || runs.length[i] < 1) return false;
    end = runs.position[i] + runs.length[i];
  }
  return end <= seq && (runs.n == 2 || runs.length[1] == 0);
}

// Where keys and values have a tensor of their own.
template <class Args>
void check_parts(dispatch::Check& check, const Args& a, std::int64_t rows) {
  const AttentionHeads& s = a.shape;
  const bool has_kv = dispatch::is_present(a.kv);
  check.require(has_kv || (s.queries.all() && s.keys.all()),
                "queries or keys of some tokens need keys and values in a tensor of their own");
  if (!has_kv) return;
  const std::int64_t width = dispatch::row_length(a.kv), key_rows = dispatch::row_count(a.kv);
  const std::int64_t queries = s.queries.tokens(s.seq), keys = s.keys.tokens(s.seq);
  check
      .require(fit(s.queries, s.seq) && fit(s.keys, s.seq), "the runs of tokens are not ascending in ", s.seq)
      .rows("kv", a.kv, key_rows, width)
      .require(s.kv_heads >= 1 && width % (2 * s.kv_heads) == 0, "rows of ", width,
               " are not a multiple of 2 * ", s.kv_heads, " heads")
      .rows("qkv", a.qkv, rows, s.heads * detail::head_dim_of(a))
      .require(queries > 0 && keys > 0 && rows % queries == 0 && key_rows % keys == 0 &&
                   rows / queries == key_rows / keys,
               rows, " queries and ", key_rows, " keys are not those of as many sequences, each with ",
               queries, " and ", keys);
}

template <class Args>
dispatch::Check check(const char* op, const Backend& backend, const Args& a) {
  const AttentionHeads& s = a.shape;
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const std::int64_t width = dispatch::row_length(a.qkv);
  dispatch::Check check(op, "qkv", a.qkv);
  check.rows("qkv", a.qkv, rows, width);
  if (!dispatch::is_present(a.kv)) detail::check_heads(check, s, width);
  check_parts(check, a, rows);
  check
      .require(s.backend == AttentionBackend::host || backend.info().kind != DeviceKind::host,
               "attention backend is ", to_string(s.backend),
               ", whose kernels and workspaces are a GPU's, on ",
               "a backend of the host; it must be host there")
      .require(s.seq >= 1 && (dispatch::is_present(a.kv) || rows % s.seq == 0), rows,
               " tokens are not a multiple of seq ", s.seq)
      .require(s.causal || (!s.alibi && !dispatch::is_present(a.doc_start)),
               "ALiBi and packed documents require causal attention")
      .require(s.window >= 0 && (s.window == 0 || s.causal), "window is ", s.window,
               "; it must be 0 or more, and above 0 only in causal attention")
      .require(s.softcap >= 0 && (s.softcap == 0 || !s.alibi), "softcap is ", s.softcap,
               "; it must be 0 or more, and above 0 only without ALiBi")
      .require(s.scale >= 0, "scale is ", s.scale, "; it must be 0 or more")
      .rows("out", a.out, dispatch::is_present(a.kv) && a.out.dtype == DType::f32 ? DType::f32 : a.qkv.dtype,
            rows, detail::head_dim_of(a) * s.heads)
      .elements("lse", a.lse, DType::f32, rows * s.heads);
  if (dispatch::is_present(a.doc_start)) check.elements("doc_start", a.doc_start, DType::i32, rows);
  return check;
}

}  // namespace

STRATA_OP(attention_forward, AttentionForwardArgs);
STRATA_OP(attention_backward, AttentionBackwardArgs);

AttentionBackend effective_attention_backend(const AttentionHeads& shape, std::int64_t tokens, DType dtype,
                                             std::int64_t head_dim, bool packed, bool backward,
                                             bool sinks) noexcept {
  const bool use_wgmma = shape.backend == AttentionBackend::wgmma && size_of(dtype) == 2 &&
                         (head_dim == 64 || head_dim == 128) && shape.softcap == 0;
  const bool use_cudnn =
      !packed && !sinks &&
      detail::cudnn_supports(detail::cudnn_attention(backward, tokens, shape, dtype, head_dim), shape);
  return use_wgmma || use_cudnn ? shape.backend : AttentionBackend::mma;
}

std::size_t attention_forward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept {
  return attention_forward_workspace_bytes(tokens, shape, DType::f32, 0);
}
std::size_t attention_forward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                              std::int64_t head_dim) noexcept {
  if (shape.backend == AttentionBackend::host)
    return workspace_bytes(tokens, shape, detail::attention_forward_slot(shape, dtype, head_dim));
  return cudnn_workspace_bytes(detail::cudnn_attention(false, tokens, shape, dtype, head_dim), shape);
}
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape) noexcept {
  return attention_backward_workspace_bytes(tokens, shape, DType::f32, 0);
}
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, const AttentionHeads& shape, DType dtype,
                                               std::int64_t head_dim) noexcept {
  // On CUDA the workspace has one f32 for each token and head.
  const std::size_t of_cuda =
      std::max(static_cast<std::size_t>(tokens * shape.heads) * sizeof(float),
               cudnn_workspace_bytes(detail::cudnn_attention(true, tokens, shape, dtype, head_dim), shape));
  if (shape.backend != AttentionBackend::host) return of_cuda;
  return std::max(workspace_bytes(tokens, shape, detail::attention_backward_slot(shape, dtype, head_dim)),
                  of_cuda);
}

Status attention_forward_async(Backend& backend, Stream& stream, const AttentionForwardArgs& a) {
  STRATA_TRY(check("attention_forward", backend, a)
                 .optional_elements("sinks", a.sinks, a.qkv.dtype, a.shape.heads)
                 .workspace(a.workspace,
                            attention_forward_workspace_bytes(detail::sequences_of(a) * a.shape.seq, a.shape,
                                                              a.qkv.dtype, detail::head_dim_of(a)))
                 .status());
  return dispatch::enqueue(backend, stream, attention_forward_op, a, {a.qkv, a.kv, a.doc_start, a.sinks},
                           {a.out, a.lse}, a.workspace);
}

Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  dispatch::Check all = check("attention_backward", backend, a);
  all.rows("dout", a.dout, rows, dispatch::row_length(a.out))
      .optional_elements("delta", a.delta, DType::f32, rows * a.shape.heads)
      .optional_elements("sinks", a.sinks, a.qkv.dtype, a.shape.heads)
      .optional_elements("delta_out", a.delta_out, DType::f32, rows * a.shape.heads)
      .rows("dqkv", a.dqkv, rows, dispatch::row_length(a.qkv))
      .workspace(a.workspace,
                 attention_backward_workspace_bytes(detail::sequences_of(a) * a.shape.seq, a.shape,
                                                    a.qkv.dtype, detail::head_dim_of(a)));
  if (dispatch::is_present(a.kv))
    all.rows("dkv", a.dkv, dispatch::row_count(a.kv), dispatch::row_length(a.kv));
  STRATA_TRY(all.status());
  return dispatch::enqueue(backend, stream, attention_backward_op, a,
                           {a.qkv, a.kv, a.out, a.lse, a.dout, a.doc_start, a.delta, a.sinks},
                           {a.dqkv, a.dkv, a.delta_out}, a.workspace);
}

}  // namespace strata::kernels

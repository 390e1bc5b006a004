#include <strata/kernels/attention.h>
#include <strata/kernels/cast_rows.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "ops/attention_heads.h"
#include "ops/op_defs.h"
#include "ops/sharded/part_attention.h"

// Attention on keys and values that come part by part (Liu et al. 2023, arXiv 2310.01889). The output is
// summed in f32; its derivative needs the sum of all parts alone, so one part's is computed as if it were the
// only one.
// ring_attention_begin: (q [T, heads d], kv, doc_start or none) -> out [T, heads d] f32, lse [T heads],
//   workspace
// ring_attention_step: (q, kv, out, lse, doc_start or none) -> out and lse with the part, workspace
// ring_attention_end: (out, lse) -> y of the dtype of q
// attention_delta: (dy, out, lse) -> stats [2, T heads]: the lse, and dot products of out and dy. It is the
//   "gradient" of lse that goes back through the steps, and dy that of out.
// ring_attention_backward: (q, kv, stats, dy, doc_start or none) -> dq, dkv, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::are_parts;
using detail::attention_heads;

Status not_a_part(In in, const AttentionAttrs& a) {
  return mismatch(detail::parts_text(a) + ", and f32 sums of the queries", in);
}
std::size_t forward_bytes(const ValueInfo& q, const AttentionAttrs& a) {
  return round_up(detail::part_forward_bytes(q, a), std::size_t{256});
}

Specs infer_begin(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!are_parts(in[0], in[1], in[2], a)) return not_a_part(in, a);
  return std::vector<OutputSpec>{{"out", in[0]->shape, DType::f32},
                                 {"lse", {in[0]->shape.dim(0) * a.heads}},
                                 workspace(forward_bytes(*in[0], a))};
}
void vjp_begin(VjpContext& c) {
  c.emit(Op::ring_attention_backward, {c.in(0), c.in(1), c.grad_output(1), c.grad_output(0), c.in(2)},
         {0, 1, -1}, c.attrs());
}
Status queue_part(const OpCall& c, const TensorView& out, const TensorView& lse, const TensorView& starts,
                  BufferView workspace, Backend& backend, Stream& stream) {
  return kernels::attention_forward_async(backend, stream,
                                          {.qkv = c.in[0],
                                           .out = out,
                                           .lse = lse,
                                           .doc_start = or_none(starts),
                                           .shape = attention_heads(c.attrs.as<AttentionAttrs>()),
                                           .workspace = workspace,
                                           .kv = c.in[1]});
}
Status launch_begin(const OpCall& c, Backend& backend, Stream& stream) {
  return queue_part(c, c.out[0], c.out[1], c.in[2], as_workspace(c.out[2]), backend, stream);
}

bool are_sums(const ValueInfo* out, const ValueInfo* lse, const ValueInfo& q, const AttentionAttrs& a) {
  return has_type(out, q.shape) && has_type(lse, {q.shape.dim(0) * a.heads});
}
// The workspace of the part's attention, then its output and its lse.
Specs infer_step(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!are_parts(in[0], in[1], in[4], a) || !are_sums(in[2], in[3], *in[0], a)) return not_a_part(in, a);
  const std::size_t bytes =
      forward_bytes(*in[0], a) + round_up(in[2]->bytes(), std::size_t{256}) + in[3]->bytes();
  return std::vector<OutputSpec>{{"out", in[0]->shape, DType::f32}, {"lse", in[3]->shape}, workspace(bytes)};
}
void vjp_step(VjpContext& c) {
  const ValueId dy = c.grad_output(0), stats = c.grad_output(1);
  c.emit(Op::ring_attention_backward, {c.in(0), c.in(1), stats, dy, c.in(4)}, {0, 1, -1}, c.attrs());
  c.propagate_grad(2, dy);
  c.propagate_grad(3, stats);
}
Status launch_step(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<AttentionAttrs>();
  const BufferView all = as_workspace(c.out[2]);
  const std::size_t lse_bytes = c.in[3].bytes(), out_bytes = round_up(c.in[2].bytes(), std::size_t{256});
  const std::size_t before = all.bytes - lse_bytes - out_bytes;
  const TensorView out{all.data + before, c.in[2].shape, DType::f32},
      lse{all.data + before + out_bytes, c.in[3].shape, DType::f32};
  STRATA_TRY(queue_part(c, out, lse, c.in[4], all.part(0, before), backend, stream));
  return kernels::merge_attention_async(
      backend, stream, {c.in[2], c.in[3], out, lse, c.out[0], c.out[1], a.heads, a.queries.tokens(a.seq)});
}

Specs infer_end(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!is_matrix(in[0]) || !are_sums(in[0], in[1], *in[0], a))
    return mismatch("out [T, heads d], lse, f32", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, a.out}};
}
void vjp_end(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  c.emit(Op::attention_delta, {dy, c.in(0), c.in(1)}, {1}, c.attrs());
  c.propagate_grad(0, dy);
}
Status launch_end(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cast_rows_async(backend, stream, {c.in[0], c.out[0]});
}

Specs infer_delta(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!is_matrix(in[0]) || !are_sums(in[1], in[2], *in[0], a))
    return mismatch("dy [T, heads d], out and lse in f32", in);
  return std::vector<OutputSpec>{{"stats", {2, in[2]->shape.dim(0)}}};
}
TensorView stat_row(const TensorView& stats, std::int64_t row) {
  const std::int64_t n = stats.shape.dim(1);
  return {stats.data + static_cast<std::size_t>(row * n) * sizeof(float), Shape{n}, DType::f32};
}
Status launch_delta(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<AttentionAttrs>();
  const TensorView lse = stat_row(c.out[0], 0);
  STRATA_TRY(backend.copy_async({lse.data, lse.bytes()}, {c.in[2].data, c.in[2].bytes()}, stream));
  return kernels::attention_delta_async(
      backend, stream, {c.in[1], c.in[0], stat_row(c.out[0], 1), a.heads, a.queries.tokens(a.seq)});
}

Specs infer_backward(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!are_parts(in[0], in[1], in[4], a) || !has_type(in[2], {2, in[0]->shape.dim(0) * a.heads}) ||
      !has_type(in[3], in[0]->shape, in[0]->dtype))
    return not_a_part(in, a);
  return detail::part_gradients(*in[0], *in[1], a);
}
Status launch_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::attention_backward_async(backend, stream,
                                           {.qkv = c.in[0],
                                            .out = c.in[3],  // not read, as delta is given
                                            .lse = stat_row(c.in[2], 0),
                                            .dout = c.in[3],
                                            .doc_start = or_none(c.in[4]),
                                            .dqkv = c.out[0],
                                            .shape = attention_heads(c.attrs.as<AttentionAttrs>()),
                                            .workspace = as_workspace(c.out[2]),
                                            .kv = c.in[1],
                                            .dkv = c.out[1],
                                            .delta = stat_row(c.in[2], 1)});
}

}  // namespace

constinit const OpDef detail::op_defs::ring_attention_begin = {
    .kind = OpKind::attention,
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_begin,
    .vjp = vjp_begin,
    .flops = detail::flops_of_parts,
    .launch = launch_begin,
};
constinit const OpDef detail::op_defs::ring_attention_step = {
    .kind = OpKind::attention,
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_step,
    .vjp = vjp_step,
    .in_place = {.out = 0, .in = 2},
    .flops = detail::flops_of_parts,
    .launch = launch_step,
};
constinit const OpDef detail::op_defs::ring_attention_end = {
    .n_in = 2,
    .infer_outputs = infer_end,
    .vjp = vjp_end,
    .flops = no_flops,
    .launch = launch_end,
};
constinit const OpDef detail::op_defs::attention_delta = {
    .n_in = 3,
    .infer_outputs = infer_delta,
    .flops = per_element,
    .launch = launch_delta,
};
constinit const OpDef detail::op_defs::ring_attention_backward = {
    .kind = OpKind::attention_backward,
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_backward,
    .flops = detail::flops_of_parts_backward,
    .launch = launch_backward,
};

}  // namespace strata

#include "ops/sharded/part_attention.h"

#include <strata/kernels/attention.h>
#include <strata/kernels/cast_rows.h>

#include <strata/runtime/str.h>

#include "ops/attention_heads.h"
#include "ops/op_defs.h"

// Attention where queries are those of some tokens of each sequence, and keys those of some or all.
// unpack_qkv: (qkv [T, (heads + 2 kv_heads) d]) -> q [T, heads d], kv [T, 2 kv_heads d]
// pack_qkv: (q, kv) -> qkv
// part_attention: (q [B Q, heads d], kv [B K, 2 kv_heads d], doc_start [B Q] i32 or none)
//   -> out [B Q, heads d], lse [B Q heads], workspace
// part_attention_backward: (q, kv, out, lse, dout, doc_start or none) -> dq, dkv, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::attention_heads;
using detail::head_dim;

Specs infer_unpack_qkv(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  if (!is_matrix(in[0]) || parts <= 0 || in[0]->shape.dim(1) % parts != 0)
    return mismatch(str("qkv [T, (", a.heads, " + 2 * ", a.kv_heads, ") d]"), in);
  const std::int64_t rows = in[0]->shape.dim(0), d = in[0]->shape.dim(1) / parts;
  return std::vector<OutputSpec>{{"q", {rows, a.heads * d}, in[0]->dtype},
                                 {"kv", {rows, 2 * a.kv_heads * d}, in[0]->dtype}};
}
void vjp_unpack_qkv(VjpContext& c) {
  c.emit(Op::pack_qkv, {c.grad_output(0), c.grad_output(1)}, {0}, c.attrs());
}
Specs infer_pack_qkv(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!is_matrix(in[0]) || !is_matrix(in[1]) || in[0]->dtype != in[1]->dtype || a.heads <= 0 ||
      in[0]->shape.dim(0) != in[1]->shape.dim(0) || in[0]->shape.dim(1) % a.heads != 0 ||
      in[1]->shape.dim(1) != 2 * a.kv_heads * head_dim(*in[0], a))
    return mismatch(str("q [T, ", a.heads, " d], kv [T, 2 * ", a.kv_heads, " d] of one dtype"), in);
  return std::vector<OutputSpec>{
      {"qkv", {in[0]->shape.dim(0), in[0]->shape.dim(1) + in[1]->shape.dim(1)}, in[0]->dtype}};
}

/// Copies columns [first, first + n of `part`) of the packed rows from or to `part`.
Status copy_part(const TensorView& packed, std::int64_t first, const TensorView& part, bool packs,
                 Backend& backend, Stream& stream) {
  const std::int64_t width = packed.shape.dim(1), n = part.shape.dim(1);
  const TensorView columns{packed.data + static_cast<std::size_t>(first) * size_of(packed.dtype),
                           Shape{packed.shape.dim(0), n}, packed.dtype};
  return kernels::cast_rows_async(backend, stream,
                                  packs ? kernels::CastRowsArgs{part, columns, n, width}
                                        : kernels::CastRowsArgs{columns, part, width, n});
}
Status copy_parts(const TensorView& packed, const TensorView& q, const TensorView& kv, bool packs,
                  Backend& backend, Stream& stream) {
  STRATA_TRY(copy_part(packed, 0, q, packs, backend, stream));
  return copy_part(packed, q.shape.dim(1), kv, packs, backend, stream);
}
Status launch_unpack_qkv(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_parts(c.in[0], c.out[0], c.out[1], false, backend, stream);
}
Status launch_pack_qkv(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_parts(c.out[0], c.in[0], c.in[1], true, backend, stream);
}

Specs infer_part_attention(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  if (!detail::are_parts(in[0], in[1], in[2], a)) return mismatch(detail::parts_text(a), in);
  return std::vector<OutputSpec>{{"out", in[0]->shape, in[0]->dtype},
                                 {"lse", {in[0]->shape.dim(0) * a.heads}},
                                 workspace(detail::part_forward_bytes(*in[0], a))};
}
void vjp_part_attention(VjpContext& c) {
  c.emit(Op::part_attention_backward, {c.in(0), c.in(1), c.out(0), c.out(1), c.grad_output(0), c.in(2)},
         {0, 1, -1}, c.attrs());
}
Status launch_part_attention(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::attention_forward_async(backend, stream,
                                          {.qkv = c.in[0],
                                           .out = c.out[0],
                                           .lse = c.out[1],
                                           .doc_start = or_none(c.in[2]),
                                           .shape = attention_heads(c.attrs.as<AttentionAttrs>()),
                                           .workspace = as_workspace(c.out[2]),
                                           .kv = c.in[1]});
}

Specs infer_part_attention_backward(In in, const Attrs& attrs) {
  return detail::part_gradients(*in[0], *in[1], attrs.as<AttentionAttrs>());
}
Status launch_part_attention_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::attention_backward_async(backend, stream,
                                           {.qkv = c.in[0],
                                            .out = c.in[2],
                                            .lse = c.in[3],
                                            .dout = c.in[4],
                                            .doc_start = or_none(c.in[5]),
                                            .dqkv = c.out[0],
                                            .shape = attention_heads(c.attrs.as<AttentionAttrs>()),
                                            .workspace = as_workspace(c.out[2]),
                                            .kv = c.in[1],
                                            .dkv = c.out[1]});
}

/// The cut of the tokens of one sequence, if the rows of several are cut alike.
std::optional<Cut> cut_of_sequence(const Cut& rows, std::int64_t seq, int ranks) {
  Cut one = rows;
  one.times = 1;
  if (one.extent() != seq || one.n > 2 || !one.divides(ranks) || one.repeats(ranks)) return std::nullopt;
  return one;
}
kernels::TokenRuns tokens_of(const Cut& sequence, int ranks, int rank) {
  kernels::TokenRuns tokens;
  for (const CutRun& run : runs_of(sequence, ranks, rank)) {
    tokens.position[tokens.n] = run.whole;
    tokens.length[tokens.n++] = run.n;
  }
  return tokens;
}

/// The cut of a sequence's tokens, which are the rows of `axis` or all rows.
Cut sequence_of(const AttentionAttrs& attrs, const ShardAxis& axis) {
  return *cut_of_sequence(axis.rows.n > 0 ? axis.rows : Cut::even(attrs.seq), attrs.seq, axis.ranks);
}

// Keys and values travel on while a rank computes with those that have arrived.
std::vector<ValueId> lower_ring_attention(const Instr& on_shards, const ShardAxis& axis, ShardedCode& code) {
  AttentionAttrs attrs = on_shards.attrs.as<AttentionAttrs>();
  const Cut sequence = sequence_of(attrs, axis);
  const std::vector<ValueId> parts = code.add(Op::unpack_qkv, {on_shards.in[0]}, attrs);
  const ValueId q = parts[0], starts = on_shards.in[1];
  ValueId kv = parts[1];
  std::vector<ValueId> sum;  // out and lse
  for (int hop = 0; hop < axis.ranks; ++hop) {
    const bool is_last = hop + 1 == axis.ranks;
    const CollectiveAttrs shift = {.axis = axis.number,
                                   .ranks = axis.ranks,
                                   .rank = axis.rank,
                                   .step = 1,
                                   .number = is_last ? 0 : code.new_number()};
    const ValueId next = is_last ? kNoValue : code.add(Op::shift_begin, {kv}, shift).front();
    attrs.keys = tokens_of(sequence, axis.ranks, (axis.rank + hop) % axis.ranks);
    if (hop == 0)
      sum = code.add(Op::ring_attention_begin, {q, kv, starts}, attrs);
    else if (detail::visible_pairs(attrs) > 0)
      sum = code.add(Op::ring_attention_step, {q, kv, sum[0], sum[1], starts}, attrs);
    if (!is_last) kv = code.add(Op::shift_end, {next, kv}, shift).front();
  }
  return {code.add(Op::ring_attention_end, {sum[0], sum[1]}, attrs).front()};
}

std::vector<ValueId> lower_part_attention(const Instr& on_shards, const ShardAxis& axis, ShardedCode& code) {
  const std::vector<ValueId> parts = code.add(Op::unpack_qkv, {on_shards.in[0]}, on_shards.attrs);
  const CollectiveAttrs along = {.axis = axis.number, .ranks = axis.ranks, .rank = axis.rank, .copied = true};
  ValueId kv = code.add(Op::all_gather, {parts[1]}, along).front();
  if (axis.rows.n > 0 && axis.rows != Cut::even(axis.rows.extent()))
    kv = code.add(Op::join_rows, {kv}, CutAttrs{axis.rows, axis.ranks}).front();
  return {code.add(Op::part_attention, {parts[0], kv, on_shards.in[1]}, on_shards.attrs).front()};
}

/// Rows of whole sequences.
std::int64_t whole_tokens(const ValueInfo& q, const AttentionAttrs& a) {
  return q.shape.dim(0) / a.queries.tokens(a.seq) * a.seq;
}

}  // namespace

bool detail::are_parts(const ValueInfo* q, const ValueInfo* kv, const ValueInfo* doc_start,
                       const AttentionAttrs& a) {
  const std::int64_t queries = a.queries.tokens(a.seq), keys = a.keys.tokens(a.seq);
  return is_matrix(q) && is_matrix(kv) && q->dtype == kv->dtype && a.heads > 0 && a.kv_heads > 0 &&
         a.heads % a.kv_heads == 0 && q->shape.dim(1) % a.heads == 0 &&
         kv->shape.dim(1) == 2 * a.kv_heads * head_dim(*q, a) && queries > 0 && keys > 0 &&
         q->shape.dim(0) % queries == 0 && kv->shape.dim(0) % keys == 0 &&
         q->shape.dim(0) / queries == kv->shape.dim(0) / keys &&
         (doc_start == nullptr || has_type(doc_start, {q->shape.dim(0)}, DType::i32));
}
std::string detail::parts_text(const AttentionAttrs& a) {
  return str("q [B * ", a.queries.tokens(a.seq), ", ", a.heads, " d], kv [B * ", a.keys.tokens(a.seq),
             ", 2 * ", a.kv_heads,
             " d] of one dtype with heads a multiple of kv_heads, doc_start of the queries, i32, or none");
}
double detail::flops_of_parts(In in, In, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  const std::int64_t sequences = in[0]->shape.dim(0) / a.queries.tokens(a.seq);
  return 4.0 * static_cast<double>(sequences) * visible_pairs(a) * static_cast<double>(in[0]->shape.dim(1));
}
double detail::flops_of_parts_backward(In in, In out, const Attrs& attrs) {
  return 2.5 * flops_of_parts(in, out, attrs);
}
std::size_t detail::part_forward_bytes(const ValueInfo& q, const AttentionAttrs& a) {
  return kernels::attention_forward_workspace_bytes(whole_tokens(q, a), attention_heads(a), q.dtype,
                                                    head_dim(q, a));
}
std::vector<OutputSpec> detail::part_gradients(const ValueInfo& q, const ValueInfo& kv,
                                               const AttentionAttrs& a) {
  return {{"dq", q.shape, q.dtype},
          {"dkv", kv.shape, kv.dtype},
          workspace(kernels::attention_backward_workspace_bytes(whole_tokens(q, a), attention_heads(a),
                                                                q.dtype, head_dim(q, a)))};
}

double detail::visible_pairs(const AttentionAttrs& a) {
  double pairs = 0;
  for (std::int64_t i = 0; i < a.queries.tokens(a.seq); ++i) {
    const std::int64_t at = a.queries.at(i);
    const std::int64_t first = a.window > 0 && at + 1 > a.window ? at + 1 - a.window : 0;
    pairs += static_cast<double>(a.keys.before(at + 1) - a.keys.before(first));
  }
  return pairs;
}

std::optional<ShardStrategy> detail::shard_part_attention(const ShardQuery& q) {
  AttentionAttrs attrs = q.attrs.as<AttentionAttrs>();
  if (!q.is_split(0, 0)) return std::nullopt;
  const Cut rows = q.cut_of(0, 0);
  if (q.axis.rows.n > 0 ? rows != q.axis.rows : rows != Cut::even(rows.extent())) return std::nullopt;
  const auto sequence = cut_of_sequence(rows, attrs.seq, q.axis.ranks);
  if (!sequence) return std::nullopt;
  attrs.queries = tokens_of(*sequence, q.axis.ranks, q.axis.rank);
  attrs.out = q.in[0]->dtype;
  const ShardPlacement by_rows = ShardPlacement::split(0, rows);
  const double all =
      static_cast<double>(q.in[0]->bytes()) * 2 * attrs.kv_heads / (attrs.heads + 2 * attrs.kv_heads);
  return ShardStrategy{{by_rows, by_rows},
                       by_rows,
                       attrs,
                       q.axis.rings_attention ? lower_ring_attention : lower_part_attention,
                       2 * all * (q.axis.ranks - 1) / q.axis.ranks};
}

constinit const OpDef detail::op_defs::unpack_qkv = {
    .n_in = 1,
    .infer_outputs = infer_unpack_qkv,
    .vjp = vjp_unpack_qkv,
    .flops = no_flops,
    .launch = launch_unpack_qkv,
};
constinit const OpDef detail::op_defs::pack_qkv = {
    .n_in = 2,
    .infer_outputs = infer_pack_qkv,
    .flops = no_flops,
    .launch = launch_pack_qkv,
};
constinit const OpDef detail::op_defs::part_attention = {
    .kind = OpKind::attention,
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_part_attention,
    .vjp = vjp_part_attention,
    .flops = detail::flops_of_parts,
    .launch = launch_part_attention,
};
constinit const OpDef detail::op_defs::part_attention_backward = {
    .kind = OpKind::attention_backward,
    .n_in = 6,
    .optional_in = 5,
    .infer_outputs = infer_part_attention_backward,
    .flops = detail::flops_of_parts_backward,
    .launch = launch_part_attention_backward,
};

}  // namespace strata

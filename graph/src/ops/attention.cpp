#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>

#include <strata/runtime/str.h>

#include "ops/attention_heads.h"
#include "ops/op_defs.h"
#include "ops/sharded/part_attention.h"

// attention: (qkv [T, (heads + 2 kv_heads) d], doc_start [T] i32 or none, sinks [heads] or none)
//   -> out [T, heads d], lse [T * heads], workspace
//
// attention_backward: (qkv, out, lse, dout, doc_start or none, sinks or none) -> dqkv, delta
//   [T * heads] if there are sinks, workspace
//
// attention_backward_sinks: (lse, delta, sinks) -> dsinks
//
// cached_attention: (qkv [R, (heads + 2 kv_heads) d], positions [R] i32, slots [R] i32, keys and values:
//   states [sequences, kv_heads, capacity, d] of the dtype of qkv, written in place, or values that have the
//   tokens' already; sinks or none) -> out [R, heads d], workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

using detail::attention_heads;

}  // namespace

kernels::AttentionHeads detail::attention_heads(const AttentionAttrs& a) {
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .seq = a.seq,
          .causal = true,
          .alibi = a.alibi,
          .backend = a.backend,
          .window = a.window,
          .softcap = a.softcap,
          .scale = a.scale,
          .alibi_heads = a.alibi_heads,
          .alibi_first = a.alibi_first,
          .queries = a.queries,
          .keys = a.keys};
}

namespace {

std::int64_t head_dim(const ValueInfo& qkv, const AttentionAttrs& a) {
  return qkv.shape.dim(1) / (a.heads + 2 * a.kv_heads);
}
bool sinks_fit(const ValueInfo* sinks, const ValueInfo& qkv, const AttentionAttrs& a) {
  return sinks == nullptr || has_type(sinks, {a.heads}, qkv.dtype);
}
bool scores_fit(const AttentionAttrs& a) { return a.window >= 0 && a.softcap >= 0 && a.scale >= 0; }
/// Twice the mean number of keys that a query sees: all up to its own, or at most `window` of them.
double twice_mean_keys(double max_keys, std::int32_t window) {
  return window == 0 || window >= max_keys ? max_keys : window * (2.0 - window / max_keys);
}
/// doc_start, which is operand 1 or, of the backward, operand 4, is given for packed documents.
AttentionBackend effective_backend(In in, const Attrs& attrs, AttentionBackend requested, bool backward) {
  AttentionAttrs a = attrs.as<AttentionAttrs>();
  a.backend = requested;
  const kernels::AttentionHeads heads = attention_heads(a);
  const bool packed = in[backward ? 4 : 1] != nullptr, sinks = in[backward ? 5 : 2] != nullptr;
  return kernels::effective_attention_backend(heads, in[0]->shape.dim(0), in[0]->dtype, head_dim(*in[0], a),
                                              packed, backward, sinks) == heads.backend
             ? requested
             : AttentionBackend::mma;
}

Specs infer_attention(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  if (!is_matrix(in[0]) || a.heads <= 0 || a.kv_heads <= 0 || a.heads % a.kv_heads != 0 || a.seq <= 0 ||
      in[0]->shape.dim(1) % parts != 0 || in[0]->shape.dim(0) % a.seq != 0 || !scores_fit(a) ||
      (in[1] != nullptr && !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32)) ||
      !sinks_fit(in[2], *in[0], a))
    return mismatch(str("qkv [batch * ", a.seq, ", (", a.heads, " + 2 * ", a.kv_heads,
                        ") d] with heads a multiple of kv_heads, doc_start [T] i32 or none, sinks [", a.heads,
                        "] of the dtype of qkv or none, a window of ", a.window, ", a soft cap of ",
                        a.softcap, " and a scale of ", a.scale, " that are not negative"),
                    in);
  const std::int64_t rows = in[0]->shape.dim(0), d = head_dim(*in[0], a);
  return std::vector<OutputSpec>{
      {"out", {rows, d * a.heads}, in[0]->dtype},
      {"lse", {rows * a.heads}},
      workspace(kernels::attention_forward_workspace_bytes(rows, attention_heads(a), in[0]->dtype, d))};
}
void vjp_attention(VjpContext& c) {
  const bool has_sinks = c.in(2) != kNoValue;
  const std::size_t backward =
      c.emit(Op::attention_backward, {c.in(0), c.out(0), c.out(1), c.grad_output(0), c.in(1), c.in(2)},
             has_sinks ? std::vector<int>{0, -1, -1} : std::vector<int>{0, -1}, c.attrs());
  if (c.needs_input_grad(2))
    c.emit(Op::attention_backward_sinks, {c.out(1), c.emitted(backward, 1), c.in(2)}, {2}, c.attrs());
}
// Two matmuls of T * seq * heads * d each, halved by the causal mask; backward has five.
double flops_attention(In in, In, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  const double d = static_cast<double>(in[0]->shape.dim(1)) / (a.heads + 2 * a.kv_heads);
  return 2.0 * static_cast<double>(in[0]->shape.dim(0)) * twice_mean_keys(a.seq, a.window) * a.heads * d;
}
Status launch_attention(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::attention_forward_async(backend, stream,
                                          {c.in[0],
                                           c.out[0],
                                           c.out[1],
                                           or_none(c.in[1]),
                                           attention_heads(c.attrs.as<AttentionAttrs>()),
                                           as_workspace(c.out[2]),
                                           {},
                                           or_none(c.in[2])});
}
AttentionBackend effective_backend_forward(In in, const Attrs& attrs, AttentionBackend requested) {
  return effective_backend(in, attrs, requested, false);
}

Cut attention_columns(const ValueInfo& qkv, const Attrs& attrs, const Cut&) {
  const auto& a = attrs.as<AttentionAttrs>();
  return cut_by_heads(qkv, a.heads, a.kv_heads);
}
/// Whether each rank has whole sequences.
bool are_sequences(const Cut& rows, std::int64_t seq, const ShardAxis& axis) {
  if (!rows.divides(axis.ranks) || rows.repeats(axis.ranks)) return false;
  const std::vector<CutRun> runs = runs_of(rows, axis.ranks, axis.rank);
  return std::all_of(runs.begin(), runs.end(),
                     [&](const CutRun& run) { return run.whole % seq == 0 && run.n % seq == 0; });
}

AttentionAttrs own_heads(const AttentionAttrs& a, const ShardAxis& axis) {
  AttentionAttrs own = with_own_heads(a, axis.ranks);
  if (a.alibi) {
    own.alibi_heads = a.alibi_heads > 0 ? a.alibi_heads : a.heads;
    own.alibi_first = a.alibi_first + own.heads * axis.rank;
  }
  return own;
}

// Splits by sequences; by tokens, where every rank has its own queries and gets all keys and values; and by
// heads, where every rank has its own, and keys and values that are fewer than ranks are computed by several.
std::vector<ShardStrategy> shard_attention(const ShardQuery& q) {
  const auto& a = q.attrs.as<AttentionAttrs>();
  std::vector<ShardStrategy> ways;
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0));
  if (are_sequences(rows.cut, a.seq, q.axis)) ways.push_back({{rows, rows, {}}, rows});
  if (q.in[2] == nullptr)
    if (auto by_tokens = detail::shard_part_attention(q)) ways.push_back(*std::move(by_tokens));
  if (a.heads % q.axis.ranks != 0) return ways;
  const Cut heads = attention_columns(*q.in[0], q.attrs, {});
  ways.push_back({{ShardPlacement::split(1, heads), ShardPlacement::copied(),
                   ShardPlacement::split(0, Cut::even(a.heads))},
                  ShardPlacement::split(1, {{heads.segment[0]}, 1}),
                  own_heads(a, q.axis)});
  return ways;
}
// A rank has the keys and values of its heads in its cache.
std::vector<ShardStrategy> shard_cached_attention(const ShardQuery& q) {
  const auto& a = q.attrs.as<AttentionAttrs>();
  if (a.heads % q.axis.ranks != 0) return {};
  const Cut heads = attention_columns(*q.in[0], q.attrs, {});
  const ShardPlacement whole, cache = ShardPlacement::split(1, Cut::even(a.kv_heads));
  return {{{ShardPlacement::split(1, heads), whole, whole, cache, cache,
            ShardPlacement::split(0, Cut::even(a.heads))},
           ShardPlacement::split(1, {{heads.segment[0]}, 1}),
           own_heads(a, q.axis)}};
}

Specs infer_attention_backward(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  std::vector<OutputSpec> out = {{"dqkv", in[0]->shape, in[0]->dtype}};
  if (in[5] != nullptr) out.push_back({"delta", in[2]->shape});
  out.push_back(workspace(kernels::attention_backward_workspace_bytes(in[0]->shape.dim(0), attention_heads(a),
                                                                      in[0]->dtype, head_dim(*in[0], a))));
  return out;
}
double flops_attention_backward(In in, In out, const Attrs& attrs) {
  return 2.5 * flops_attention(in, out, attrs);
}
Status launch_attention_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::attention_backward_async(backend, stream,
                                           {.qkv = c.in[0],
                                            .out = c.in[1],
                                            .lse = c.in[2],
                                            .dout = c.in[3],
                                            .doc_start = or_none(c.in[4]),
                                            .dqkv = c.out[0],
                                            .shape = attention_heads(c.attrs.as<AttentionAttrs>()),
                                            .workspace = as_workspace(c.out.back()),
                                            .sinks = or_none(c.in[5]),
                                            .delta_out = c.out.size() > 2 ? c.out[1] : TensorView{}});
}
AttentionBackend effective_backend_backward(In in, const Attrs& attrs, AttentionBackend requested) {
  return effective_backend(in, attrs, requested, true);
}

Specs infer_attention_backward_sinks(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dsinks", in[2]->shape, in[2]->dtype}};
}
Status launch_attention_backward_sinks(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::attention_backward_sinks_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.out[0], c.attrs.as<AttentionAttrs>().seq, accumulates(c, 0)});
}

kernels::CachedAttentionShape cached_attention_shape(const AttentionAttrs& a) {
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .alibi = a.alibi,
          .window = a.window,
          .softcap = a.softcap,
          .scale = a.scale,
          .alibi_heads = a.alibi_heads,
          .alibi_first = a.alibi_first,
          .is_stored = a.is_stored};
}
Specs infer_cached_attention(In in, const Attrs& attrs) {
  const auto& a = attrs.as<AttentionAttrs>();
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  const auto holds = [&](const ValueInfo* cache) {
    return cache != nullptr && (cache->kind == ValueKind::state) == !a.is_stored &&
           cache->dtype == in[0]->dtype && cache->shape.rank == 4 && cache->shape.dim(1) == a.kv_heads &&
           cache->shape.dim(3) == in[0]->shape.dim(1) / parts;
  };
  if (!is_matrix(in[0]) || a.heads <= 0 || a.kv_heads <= 0 || a.heads % a.kv_heads != 0 ||
      in[0]->shape.dim(1) % parts != 0 || !scores_fit(a) ||
      !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32) ||
      !has_type(in[2], {in[0]->shape.dim(0)}, DType::i32) || !holds(in[3]) || !holds(in[4]) ||
      !has_type(in[4], in[3]->shape, in[0]->dtype) || !sinks_fit(in[5], *in[0], a))
    return mismatch(str("qkv [R, (", a.heads, " + 2 * ", a.kv_heads,
                        ") d] with heads a multiple of kv_heads, positions and slots [R] i32, and the ",
                        a.is_stored ? "" : "states ", "keys and values [sequences, ", a.kv_heads,
                        ", capacity, d] and sinks [", a.heads, "] or none, of the dtype of qkv"),
                    in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{
      {"out", {rows, head_dim(*in[0], a) * a.heads}, in[0]->dtype},
      workspace(kernels::cached_attention_workspace_bytes(rows, in[3]->shape.dim(2), in[3]->shape.dim(3),
                                                          cached_attention_shape(a)))};
}
// Two matmuls with as many keys as a token sees on average: half the capacity.
double flops_cached_attention(In in, In out, const Attrs& attrs) {
  return 2.0 * static_cast<double>(out[0]->shape.n_elems()) *
         twice_mean_keys(static_cast<double>(in[3]->shape.dim(2)), attrs.as<AttentionAttrs>().window);
}
Status launch_cached_attention(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cached_attention_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0],
       cached_attention_shape(c.attrs.as<AttentionAttrs>()), as_workspace(c.out[1]), or_none(c.in[5])});
}

AttentionAttrs attention_attrs(Heads heads, int seq, const ScoreOptions& scores) {
  return {.heads = heads.query,
          .kv_heads = heads.key,
          .seq = seq,
          .alibi = scores.alibi,
          .window = scores.window,
          .softcap = scores.softcap,
          .scale = scores.scale};
}

}  // namespace

Value Builder::attention(Value qkv, Heads heads, int seq, const ScoreOptions& scores, Value doc_start,
                         Value sinks) {
  return op(Op::attention, {qkv, doc_start, sinks}, attention_attrs(heads, seq, scores));
}
Value Builder::cached_attention(Value qkv, Value positions, Value slots, Value keys, Value values,
                                Heads heads, const ScoreOptions& scores, Value sinks) {
  return op(Op::cached_attention, {qkv, positions, slots, keys, values, sinks},
            attention_attrs(heads, 0, scores));
}
Value Builder::stored_attention(Value qkv, Value positions, Value slots, const KeysValues& of, Heads heads,
                                const ScoreOptions& scores, Value sinks) {
  AttentionAttrs attrs = attention_attrs(heads, 0, scores);
  attrs.is_stored = true;
  return op(Op::cached_attention, {qkv, positions, slots, of.keys, of.values, sinks}, attrs);
}

constinit const OpDef detail::op_defs::attention = {
    .kind = OpKind::attention,
    .n_in = 3,
    .optional_in = {1, 2},
    .infer_outputs = infer_attention,
    .vjp = vjp_attention,
    .flops = flops_attention,
    .launch = launch_attention,
    .shard = shard_attention,
    .operand_columns = attention_columns,
    .effective_backend = effective_backend_forward,
};
constinit const OpDef detail::op_defs::attention_backward = {
    .kind = OpKind::attention_backward,
    .n_in = 6,
    .optional_in = {4, 5},
    .infer_outputs = infer_attention_backward,
    .flops = flops_attention_backward,
    .launch = launch_attention_backward,
    .effective_backend = effective_backend_backward,
};
constinit const OpDef detail::op_defs::attention_backward_sinks = {
    .n_in = 3,
    .infer_outputs = infer_attention_backward_sinks,
    .flops = no_flops,
    .launch = launch_attention_backward_sinks,
};
constinit const OpDef detail::op_defs::cached_attention = {
    .kind = OpKind::attention,
    .n_in = 6,
    .optional_in = 5,
    .infer_outputs = infer_cached_attention,
    .flops = flops_cached_attention,
    .launch = launch_cached_attention,
    .shard = shard_cached_attention,
    .operand_columns = attention_columns,
};

}  // namespace strata

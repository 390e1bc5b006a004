#include <strata/kernels/rmsnorm.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// qk_norm: (qkv [T, (heads + 2 kv_heads) d], q_weight [d], k_weight [d]), or the weights [heads d] and
// [kv_heads d], -> y, rstd
// qk_norm_backward: (qkv, q_weight, k_weight, rstd, dy) -> dx, dq_weight, dk_weight, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_qk_norm(In in, const Attrs& attrs) {
  const auto& a = attrs.as<QkNormAttrs>();
  const std::int64_t parts = a.heads + 2 * a.kv_heads;
  const bool fits = is_matrix(in[0]) && a.heads > 0 && a.kv_heads > 0 && in[0]->shape.dim(1) % parts == 0;
  const std::int64_t d = fits ? in[0]->shape.dim(1) / parts : 0;
  const bool of_heads = fits && has_type(in[1], {d}, in[0]->dtype) && has_type(in[2], {d}, in[0]->dtype);
  const bool of_all =
      fits && has_type(in[1], {a.heads * d}, in[0]->dtype) && has_type(in[2], {a.kv_heads * d}, in[0]->dtype);
  if (d == 0 || (!of_heads && (!of_all || a.values)))
    return mismatch(str("qkv [T, (", a.heads, " + 2 * ", a.kv_heads, ") d] and weights [d] and [d], or [",
                        a.heads, " d] and [", a.kv_heads, " d], of one dtype"),
                    in);
  const std::int64_t stats = of_heads ? a.heads + (a.values ? 2 : 1) * a.kv_heads : 2;
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}, {"rstd", {in[0]->shape.dim(0) * stats}}};
}
void vjp_qk_norm(VjpContext& c) {
  c.emit(Op::qk_norm_backward, {c.in(0), c.in(1), c.in(2), c.out(1), c.grad_output(0)}, {0, 1, 2, -1},
         c.attrs());
}

/// The number of groups of a token's query and key heads that are normalized separately: one per head, or one
/// for all heads.
struct NormedRuns {
  std::int64_t query, key;
};
NormedRuns normed_runs(const OpCall& c) {
  const auto& a = c.attrs.as<QkNormAttrs>();
  const std::int64_t d = c.in[0].shape.dim(1) / (a.heads + 2 * a.kv_heads);
  return c.in[1].n_elems() == d ? NormedRuns{a.heads, a.kv_heads} : NormedRuns{1, 1};
}
Status launch_qk_norm(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<QkNormAttrs>();
  const NormedRuns runs = normed_runs(c);
  return kernels::qk_norm_forward_async(backend, stream,
                                        {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], runs.query, runs.key,
                                         a.eps, a.weight_offset, a.values});
}

Cut qk_norm_columns(const ValueInfo& qkv, const Attrs& attrs, const Cut&) {
  const auto& a = attrs.as<QkNormAttrs>();
  return cut_by_heads(qkv, a.heads, a.kv_heads);
}
// Heads that are normalized together stay on one rank.
std::vector<ShardStrategy> shard_qk_norm(const ShardQuery& q) {
  std::vector<ShardStrategy> found = shard_rows(q);
  const auto& a = q.attrs.as<QkNormAttrs>();
  const ShardPlacement heads = ShardPlacement::split(1, qk_norm_columns(*q.in[0], q.attrs, {})),
                       whole = ShardPlacement::copied();
  if (q.in[1]->shape.dim(0) * (a.heads + 2 * a.kv_heads) == q.in[0]->shape.dim(1))
    found.push_back({{heads, whole, whole}, heads, with_own_heads(a, q.axis.ranks)});
  return found;
}

Specs infer_qk_norm_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", in[0]->shape, in[0]->dtype},
                                 {"dq_weight", in[1]->shape, in[1]->dtype},
                                 {"dk_weight", in[2]->shape, in[2]->dtype},
                                 workspace(kernels::qk_norm_backward_workspace_bytes(
                                     in[0]->shape.dim(0), in[1]->shape.dim(0), in[2]->shape.dim(0)))};
}
Status launch_qk_norm_backward(const OpCall& c, Backend& backend, Stream& stream) {
  const NormedRuns runs = normed_runs(c);
  return kernels::qk_norm_backward_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0], c.out[1], c.out[2], runs.query, runs.key,
       accumulates(c, 1), accumulates(c, 2), as_workspace(c.out[3]), c.attrs.as<QkNormAttrs>().weight_offset,
       c.attrs.as<QkNormAttrs>().values});
}

}  // namespace

Value Builder::qk_norm(Value qkv, Value q_weight, Value k_weight, Heads heads, float eps, float offset,
                       bool values) {
  return op(Op::qk_norm, {qkv, q_weight, k_weight},
            QkNormAttrs{.heads = heads.query,
                        .kv_heads = heads.key,
                        .eps = eps,
                        .weight_offset = offset,
                        .values = values});
}

constinit const OpDef detail::op_defs::qk_norm = {
    .n_in = 3,
    .infer_outputs = infer_qk_norm,
    .vjp = vjp_qk_norm,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_qk_norm,
    .shard = shard_qk_norm,
    .operand_columns = qk_norm_columns,
};
constinit const OpDef detail::op_defs::qk_norm_backward = {
    .n_in = 5,
    .infer_outputs = infer_qk_norm_backward,
    .in_place = {.out = 0, .in = 4},
    .flops = per_element,
    .launch = launch_qk_norm_backward,
};

}  // namespace strata

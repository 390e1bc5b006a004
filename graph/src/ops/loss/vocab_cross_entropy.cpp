#include "ops/loss/vocab_cross_entropy.h"

#include <strata/kernels/linear_cross_entropy.h>

#include "ops/loss/head_gemm.h"
#include "ops/op_defs.h"

// The cross entropy of linear_cross_entropy where each of n ranks has a part of the vocabulary.
// linear_log_sum_exp: (x [T, K], w [V / n, K], targets [T] i32) -> stats [2, T], workspace: the log-sum-exps
// of
//   the part's logits, and the targets' logits
// merge_losses: (x, w, targets, stats [2 n, T] of all parts, divisor [1] or none) -> loss [1], losses [T],
//   lse [T]; x and w are operands for their gradients
// linear_cross_entropy_part_backward: (x, w, targets, lse, divisor or none) -> dx, dw, workspace: the part's
//   summand of dx; it recomputes the logits
// The first and the last are GEMMs, whose last output is their workspace if they have one.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::flops_head_gemm;
using detail::head_blocks;
using detail::is_head;
using detail::with_head_workspaces;

TensorView row_of(const TensorView& stats, std::int64_t row) {
  const std::int64_t n = stats.shape.dim(1);
  return {stats.data + static_cast<std::size_t>(row * n) * sizeof(float), Shape{n}, DType::f32};
}

Specs infer_linear_log_sum_exp(In in, const Attrs& attrs) {
  if (!is_head(in)) return mismatch("x [T, K], weight [V, K] of one dtype, targets [T] i32", in);
  return with_head_workspaces({{"stats", {2, in[0]->shape.dim(0)}}}, in, attrs);
}
Status launch_linear_log_sum_exp(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<LinearCrossEntropyAttrs>();
  return kernels::linear_log_sum_exp_async(backend, stream,
                                           {.x = c.in[0],
                                            .w = c.in[1],
                                            .targets = c.in[2],
                                            .losses = row_of(c.out[0], 1),
                                            .mean_loss = {},
                                            .workspace = as_workspace(c.out[1]),
                                            .gemm_workspace = workspace_or_none(c, 2),
                                            .softcap = a.softcap,
                                            .first_row = a.first_row,
                                            .lse = row_of(c.out[0], 0),
                                            .blocks = head_blocks(c.attrs)});
}

Specs infer_merge_losses(In in, const Attrs&) {
  const std::int64_t rows = in[0] != nullptr && in[0]->shape.rank == 2 ? in[0]->shape.dim(0) : 0;
  if (!is_head(in) || !is_matrix(in[3]) || in[3]->dtype != DType::f32 || in[3]->shape.dim(0) % 2 != 0 ||
      in[3]->shape.dim(1) != rows || (in[4] != nullptr && !has_type(in[4], {1})))
    return mismatch(
        "x [T, K], weight [V, K] of one dtype, targets [T] i32, stats [2 n, T], divisor [1] or none", in);
  return std::vector<OutputSpec>{{"loss", {1}}, {"losses", {rows}}, {"lse", {rows}}};
}
void vjp_merge_losses(VjpContext& c) {
  const auto& [softcap, first_row] = c.attrs().as<MergeLossesAttrs>();
  LinearCrossEntropyAttrs attrs;
  attrs.softcap = softcap;
  attrs.first_row = first_row;
  attrs.no_dx = !c.needs_input_grad(0);
  attrs.no_dw = !c.needs_input_grad(1);
  c.emit(Op::linear_cross_entropy_part_backward, {c.in(0), c.in(1), c.in(2), c.out(2), c.in(4)}, {0, 1, -1},
         attrs);
}
Status launch_merge_losses(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::merge_losses_async(backend, stream,
                                     {c.in[3], c.in[2], c.out[2], c.out[1], c.out[0], or_none(c.in[4])});
}

Specs infer_part_backward(In in, const Attrs& attrs) {
  const auto& a = attrs.as<LinearCrossEntropyAttrs>();
  const std::int64_t rows = in[0] != nullptr && in[0]->shape.rank == 2 ? in[0]->shape.dim(0) : 0;
  if (!is_head(in) || !has_type(in[3], {rows}) || (in[4] != nullptr && !has_type(in[4], {1})))
    return mismatch("x [T, K], weight [V, K] of one dtype, targets [T] i32, lse [T], divisor [1] or none",
                    in);
  const Shape none = {0};
  return with_head_workspaces({{"dx", a.no_dx ? none : in[0]->shape, in[0]->dtype},
                               {"dw", a.no_dw ? none : in[1]->shape, DType::f32}},
                              in, attrs);
}
double flops_part_backward(In in, In out, const Attrs& attrs) {
  const auto& a = attrs.as<LinearCrossEntropyAttrs>();
  return (3.0 - a.no_dx - a.no_dw) * flops_head_gemm(in, out, attrs);
}
Status launch_part_backward(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<LinearCrossEntropyAttrs>();
  return kernels::linear_cross_entropy_backward_async(backend, stream,
                                                      {.forward = {.x = c.in[0],
                                                                   .w = c.in[1],
                                                                   .targets = c.in[2],
                                                                   .losses = {},
                                                                   .mean_loss = {},
                                                                   .divisor = or_none(c.in[4]),
                                                                   .workspace = as_workspace(c.out[2]),
                                                                   .gemm_workspace = workspace_or_none(c, 3),
                                                                   .softcap = a.softcap,
                                                                   .first_row = a.first_row,
                                                                   .lse = c.in[3],
                                                                   .blocks = head_blocks(c.attrs)},
                                                       .dx = or_none(c.out[0]),
                                                       .dw = or_none(c.out[1]),
                                                       .accumulate_dw = accumulates(c, 1)});
}

}  // namespace

std::vector<ValueId> detail::lower_vocab_cross_entropy(const Instr& on_shards, const ShardAxis& axis,
                                                       ShardedCode& code) {
  const auto& in = on_shards.in;
  const auto& part = on_shards.attrs.as<LinearCrossEntropyAttrs>();
  const ValueId stats = code.add(Op::linear_log_sum_exp, {in[0], in[1], in[2]}, on_shards.attrs).front();
  const CollectiveAttrs along = {.axis = axis.number, .ranks = axis.ranks, .rank = axis.rank};
  const ValueId all = code.add(Op::all_gather, {stats}, along).front();
  const std::vector<ValueId> merged = code.add(Op::merge_losses, {in[0], in[1], in[2], all, in[3]},
                                               MergeLossesAttrs{part.softcap, part.first_row});
  return {merged[0], merged[1]};
}

constinit const OpDef detail::op_defs::linear_log_sum_exp = {
    .kind = OpKind::gemm,
    .n_in = 3,
    .infer_outputs = infer_linear_log_sum_exp,
    .flops = flops_head_gemm,
    .blocks = detail::blocks_of_forward,
    .launch = launch_linear_log_sum_exp,
};
constinit const OpDef detail::op_defs::merge_losses = {
    .n_in = 5,
    .optional_in = 4,
    .shape_only_in = 1,
    .infer_outputs = infer_merge_losses,
    .vjp = vjp_merge_losses,
    .f32_grad_in = 1,
    .flops = no_flops,
    .launch = launch_merge_losses,
};
constinit const OpDef detail::op_defs::linear_cross_entropy_part_backward = {
    .kind = OpKind::gemm,
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_part_backward,
    .flops = flops_part_backward,
    .blocks = detail::blocks_of_backward<LinearCrossEntropyAttrs>,
    .launch = launch_part_backward,
};

}  // namespace strata

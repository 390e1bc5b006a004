#include <strata/kernels/align/linear_log_probs.h>

#include "ops/loss/head_gemm.h"
#include "ops/op_defs.h"

// linear_log_probs: (x [T, K], w [V, K], targets [T] i32) -> log_probs [T], entropies [T] or empty, lse [T],
//   workspace
// linear_log_probs_backward: (x, w, targets, lse, dlog_probs [T]) -> dx, dw, workspace; it recomputes the
//   logits
// Both are GEMMs, whose last output is their workspace if they have one.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::flops_head_gemm;
using detail::head_blocks;
using detail::is_head;
using detail::with_head_workspaces;

Specs infer_linear_log_probs(In in, const Attrs& attrs) {
  const auto& a = attrs.as<LinearLogProbsAttrs>();
  if (!is_head(in) || !(a.scaling.temperature > 0) || a.scaling.softcap < 0)
    return mismatch("x [T, K], weight [V, K] of one dtype, targets [T] i32, a temperature above 0", in);
  const Shape rows = {in[0]->shape.dim(0)}, none = {0};
  return with_head_workspaces({{"log_probs", rows}, {"entropies", a.entropy ? rows : none}, {"lse", rows}},
                              in, attrs);
}
void vjp_linear_log_probs(VjpContext& c) {
  auto attrs = c.attrs().as<LinearLogProbsAttrs>();
  attrs.entropy = false;
  attrs.gemm = {};  // assign_gemm_workspaces adds a workspace later
  attrs.no_dx = !c.needs_input_grad(0);
  attrs.no_dw = !c.needs_input_grad(1);
  c.emit(Op::linear_log_probs_backward, {c.in(0), c.in(1), c.in(2), c.out(2), c.grad_output(0)}, {0, 1, -1},
         attrs);
}
Status launch_linear_log_probs(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<LinearLogProbsAttrs>();
  return kernels::linear_log_probs_async(backend, stream,
                                         {.x = c.in[0],
                                          .w = c.in[1],
                                          .targets = c.in[2],
                                          .log_probs = c.out[0],
                                          .lse = c.out[2],
                                          .entropies = a.entropy ? c.out[1] : TensorView{},
                                          .workspace = as_workspace(c.out[3]),
                                          .gemm_workspace = workspace_or_none(c, 4),
                                          .scaling = a.scaling,
                                          .blocks = head_blocks(c.attrs)});
}

// Splits by rows. Entropies are known only to be local to the rank, so they are computed whole.
std::vector<ShardStrategy> shard_linear_log_probs(const ShardQuery& q) {
  if (q.attrs.as<LinearLogProbsAttrs>().entropy) return {};
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0));
  return {{{rows, ShardPlacement::copied(), rows}, rows}};
}

Specs infer_linear_log_probs_backward(In in, const Attrs& attrs) {
  const auto& a = attrs.as<LinearLogProbsAttrs>();
  if (!is_head(in) || !has_type(in[3], in[2]->shape) || !has_type(in[4], in[2]->shape))
    return mismatch("x [T, K], weight [V, K] of one dtype, targets [T] i32, lse [T], dlog_probs [T]", in);
  const Shape none = {0};
  return with_head_workspaces({{"dx", a.no_dx ? none : in[0]->shape, in[0]->dtype},
                               {"dw", a.no_dw ? none : in[1]->shape, DType::f32}},
                              in, attrs);
}
double flops_linear_log_probs_backward(In in, In out, const Attrs& attrs) {
  const auto& a = attrs.as<LinearLogProbsAttrs>();
  return (3.0 - a.no_dx - a.no_dw) * flops_head_gemm(in, out, attrs);
}
Status launch_linear_log_probs_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_log_probs_backward_async(backend, stream,
                                                  {.x = c.in[0],
                                                   .w = c.in[1],
                                                   .targets = c.in[2],
                                                   .lse = c.in[3],
                                                   .dlog_probs = c.in[4],
                                                   .dx = or_none(c.out[0]),
                                                   .dw = or_none(c.out[1]),
                                                   .accumulate_dw = accumulates(c, 1),
                                                   .workspace = as_workspace(c.out[2]),
                                                   .gemm_workspace = workspace_or_none(c, 3),
                                                   .scaling = c.attrs.as<LinearLogProbsAttrs>().scaling,
                                                   .blocks = head_blocks(c.attrs)});
}

}  // namespace

LogProbs Builder::linear_log_probs(Value x, Value weight, Value targets,
                                   const kernels::LogProbScaling& scaling, bool entropy) {
  const Value log_probs = op(Op::linear_log_probs, {x, weight, targets},
                             LinearLogProbsAttrs{.scaling = scaling, .entropy = entropy});
  return {log_probs, entropy ? output(log_probs, 1) : Value{}};
}

// The gradient of the weight is computed in blocks of rows, so it is a sum in f32.
constinit const OpDef detail::op_defs::linear_log_probs = {
    .kind = OpKind::gemm,
    .n_in = 3,
    .infer_outputs = infer_linear_log_probs,
    .vjp = vjp_linear_log_probs,
    .only_first_out = true,
    .f32_grad_in = 1,
    .flops = flops_head_gemm,
    .blocks = detail::blocks_of_forward,
    .launch = launch_linear_log_probs,
    .shard = shard_linear_log_probs,
};
constinit const OpDef detail::op_defs::linear_log_probs_backward = {
    .kind = OpKind::gemm,
    .n_in = 5,
    .infer_outputs = infer_linear_log_probs_backward,
    .flops = flops_linear_log_probs_backward,
    .blocks = detail::blocks_of_backward<LinearLogProbsAttrs>,
    .launch = launch_linear_log_probs_backward,
};

}  // namespace strata

#include <strata/kernels/linear_cross_entropy.h>

#include "ops/loss/head_gemm.h"
#include "ops/loss/vocab_cross_entropy.h"
#include "ops/op_defs.h"

// linear_cross_entropy: (x [T, K], w [V, K], targets [T] i32, divisor [1] or none) -> loss [1], losses [T],
// workspace
// linear_cross_entropy_backward: (the same) -> dx, dw, loss, losses, workspace; it recomputes the logits and
// with them the loss
// Both are GEMMs, whose last output is their workspace if they have one.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::flops_head_gemm;
using detail::head_blocks;
using detail::is_head;

Specs infer_linear_cross_entropy(In in, const Attrs& attrs) {
  if (!is_head(in) || (in[3] != nullptr && !has_type(in[3], {1})))
    return mismatch("x [T, K], weight [V, K] of one dtype, targets [T] i32, divisor [1] or none", in);
  return detail::with_head_workspaces({{"loss", {1}}, {"losses", {in[0]->shape.dim(0)}}}, in, attrs);
}
void vjp_linear_cross_entropy(VjpContext& c) {
  auto attrs = c.attrs().as<LinearCrossEntropyAttrs>();
  attrs.gemm = {};  // assign_gemm_workspaces adds a workspace later
  attrs.no_dx = !c.needs_input_grad(0);
  attrs.no_dw = !c.needs_input_grad(1);
  const std::size_t backward = c.emit(Op::linear_cross_entropy_backward, {c.in(0), c.in(1), c.in(2), c.in(3)},
                                      {0, 1, -1, -1, -1}, attrs);
  c.replace_forward(backward, 2, 2);  // its loss and losses replace the forward's
}
Status launch_linear_cross_entropy(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_cross_entropy_async(backend, stream,
                                             {.x = c.in[0],
                                              .w = c.in[1],
                                              .targets = c.in[2],
                                              .losses = c.out[1],
                                              .mean_loss = c.out[0],
                                              .divisor = or_none(c.in[3]),
                                              .workspace = as_workspace(c.out[2]),
                                              .gemm_workspace = workspace_or_none(c, 3),
                                              .softcap = c.attrs.as<LinearCrossEntropyAttrs>().softcap,
                                              .blocks = head_blocks(c.attrs)});
}

// Splits by rows, where the loss is a sum, since all ranks divide by the same divisor; and by rows of the
// weight, where the loss is merged from those of the parts of the vocabulary.
std::vector<ShardStrategy> shard_linear_cross_entropy(const ShardQuery& q) {
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0)), whole = ShardPlacement::copied();
  std::vector<ShardStrategy> ways;
  if (q.in[3] != nullptr) ways.push_back({{rows, whole, rows, whole}, ShardPlacement::partial()});
  const Cut vocab = Cut::nearly_even(q.in[1]->shape.dim(0), q.axis.ranks);
  if (!vocab.divides(q.axis.ranks) || vocab.repeats(q.axis.ranks)) return ways;
  auto part = q.attrs.as<LinearCrossEntropyAttrs>();
  part.first_row += runs_of(vocab, q.axis.ranks, q.axis.rank).front().whole;
  ways.push_back({{whole, ShardPlacement::split(0, vocab), whole, whole},
                  ShardPlacement::replicated(),
                  part,
                  detail::lower_vocab_cross_entropy});
  return ways;
}

Specs infer_linear_cross_entropy_backward(In in, const Attrs& attrs) {
  const auto& a = attrs.as<LinearCrossEntropyAttrs>();
  STRATA_TRY_ASSIGN(std::vector<OutputSpec> out, infer_linear_cross_entropy(in, attrs));
  const Shape none = {0};
  out.insert(out.begin(), {{"dx", a.no_dx ? none : in[0]->shape, in[0]->dtype},
                           {"dw", a.no_dw ? none : in[1]->shape, DType::f32}});
  return out;
}
double flops_linear_cross_entropy_backward(In in, In out, const Attrs& attrs) {
  const auto& a = attrs.as<LinearCrossEntropyAttrs>();
  return (3.0 - a.no_dx - a.no_dw) * flops_head_gemm(in, out, attrs);
}
Status launch_linear_cross_entropy_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_cross_entropy_backward_async(
      backend, stream,
      {.forward = {.x = c.in[0],
                   .w = c.in[1],
                   .targets = c.in[2],
                   .losses = c.out[3],
                   .mean_loss = c.out[2],
                   .divisor = or_none(c.in[3]),
                   .workspace = as_workspace(c.out[4]),
                   .gemm_workspace = workspace_or_none(c, 5),
                   .softcap = c.attrs.as<LinearCrossEntropyAttrs>().softcap,
                   .blocks = head_blocks(c.attrs)},
       .dx = or_none(c.out[0]),
       .dw = or_none(c.out[1]),
       .accumulate_dw = accumulates(c, 1)});
}

}  // namespace

Value Builder::linear_cross_entropy(Value x, Value weight, Value targets, Value divisor, float softcap) {
  return op(Op::linear_cross_entropy, {x, weight, targets, divisor},
            LinearCrossEntropyAttrs{.softcap = softcap});
}

// The gradient of the weight is computed in blocks of rows, so it is a sum in f32.
constinit const OpDef detail::op_defs::linear_cross_entropy = {
    .kind = OpKind::gemm,
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_linear_cross_entropy,
    .vjp = vjp_linear_cross_entropy,
    .f32_grad_in = 1,
    .flops = flops_head_gemm,
    .blocks = detail::blocks_of_forward,
    .launch = launch_linear_cross_entropy,
    .shard = shard_linear_cross_entropy,
};
constinit const OpDef detail::op_defs::linear_cross_entropy_backward = {
    .kind = OpKind::gemm,
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_linear_cross_entropy_backward,
    .flops = flops_linear_cross_entropy_backward,
    .blocks = detail::blocks_of_backward<LinearCrossEntropyAttrs>,
    .launch = launch_linear_cross_entropy_backward,
};

}  // namespace strata

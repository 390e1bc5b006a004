#include <strata/kernels/experts/biases.h>

#include "ops/op_defs.h"

// expert_scale: (weights [T, k] f32, experts [T, k] i32, offsets [E + 1], source [T k], s [E] f32) -> y [T,
// k]:
//   each weight times the factor of its expert (Gemma 4); offsets and source are read by the derivative alone
// expert_scale_backward: (dy [T, k], weights, offsets, source, s for its shape) -> ds
//
// A weight times a factor is what the bias of an expert adds to a token that has one choice and one column,
// so that the kernels are those of expert_bias.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

TensorView as_column(TensorView view) {
  view.shape = {view.n_elems(), 1};
  return view;
}

Specs infer_expert_scale(In in, const Attrs&) {
  if (!is_matrix(in[0]) || in[0]->dtype != DType::f32 || !has_type(in[1], in[0]->shape, DType::i32) ||
      in[4] == nullptr || in[4]->shape.rank != 1 || in[4]->dtype != DType::f32 ||
      !has_type(in[2], {in[4]->shape.dim(0) + 1}, DType::i32) ||
      !has_type(in[3], {in[0]->shape.n_elems()}, DType::i32))
    return mismatch(
        "weights [T, k] f32, experts [T, k] i32, offsets [E + 1] i32, source [T k] i32, factors [E] f32", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape}};
}
void vjp_expert_scale(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(4)) c.emit(Op::expert_scale_backward, {dy, c.in(0), c.in(2), c.in(3), c.in(4)}, {4});
  if (c.needs_input_grad(0)) c.emit(Op::expert_scale, {dy, c.in(1), c.in(2), c.in(3), c.in(4)}, {0});
}
Status launch_expert_scale(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_bias_forward_async(
      backend, stream, {as_column(c.in[4]), as_column(c.in[0]), as_column(c.in[1]), as_column(c.out[0])});
}

Specs infer_expert_scale_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"ds", in[4]->shape}};
}
Status launch_expert_scale_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_bias_backward_async(
      backend, stream,
      {as_column(c.in[0]), as_column(c.in[1]), c.in[2], c.in[3], as_column(c.out[0]), accumulates(c, 0)});
}

}  // namespace

Value Builder::expert_scale(const Routed& routed, const RoutedRows& rows, Value factors) {
  return op(Op::expert_scale, {routed.weights, routed.experts, rows.offsets, rows.source, factors});
}

constinit const OpDef detail::op_defs::expert_scale = {
    .n_in = 5,
    .infer_outputs = infer_expert_scale,
    .vjp = vjp_expert_scale,
    .flops = per_element,
    .launch = launch_expert_scale,
};
constinit const OpDef detail::op_defs::expert_scale_backward = {
    .n_in = 5,
    .shape_only_in = 4,
    .infer_outputs = infer_expert_scale_backward,
    .flops = per_element,
    .launch = launch_expert_scale_backward,
};

}  // namespace strata

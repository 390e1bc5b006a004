#include <strata/kernels/experts/biases.h>

#include "ops/op_defs.h"

// router_bias: (logits [T, E] f32, b [E]) -> sums [T, E] f32
// expert_bias: (b [E, H], weights [T, k] f32, experts [T, k] i32, offsets [E + 1], source [T k]) -> y [T, H];
//   the last two are read by the derivative alone
// expert_bias_backward: (dy [T, H], weights, offsets, source, b for its shape) -> db
// expert_bias_backward_weights: (dy, b, experts) -> dweights

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_router_bias(In in, const Attrs&) {
  if (!is_matrix(in[0]) || in[0]->dtype != DType::f32 || in[1] == nullptr || !is_stored_dtype(in[1]->dtype) ||
      !has_type(in[1], {in[0]->shape.dim(1)}, in[1]->dtype))
    return mismatch("logits [T, E] f32, bias [E]", in);
  return std::vector<OutputSpec>{{"sums", in[0]->shape}};
}
void vjp_router_bias(VjpContext& c) {
  if (c.needs_input_grad(1)) c.emit(Op::linear_backward_bias, {c.grad_output(0), c.in(1)}, {1, -1});
  c.propagate_grad(0, c.grad_output(0));
}
Status launch_router_bias(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::router_bias_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

Specs infer_expert_bias(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !is_stored_dtype(in[0]->dtype) || !is_matrix(in[1]) ||
      in[1]->dtype != DType::f32 || !has_type(in[2], in[1]->shape, DType::i32) ||
      !has_type(in[3], {in[0]->shape.dim(0) + 1}, DType::i32) ||
      !has_type(in[4], {in[1]->shape.n_elems()}, DType::i32))
    return mismatch(
        "biases [E, H], weights [T, k] f32, experts [T, k] i32, offsets [E + 1] i32, source [T k] i32", in);
  return std::vector<OutputSpec>{{"y", {in[1]->shape.dim(0), in[0]->shape.dim(1)}, in[0]->dtype}};
}
void vjp_expert_bias(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(0)) c.emit(Op::expert_bias_backward, {dy, c.in(1), c.in(3), c.in(4), c.in(0)}, {0});
  if (c.needs_input_grad(1)) c.emit(Op::expert_bias_backward_weights, {dy, c.in(0), c.in(2)}, {1});
}
double flops_expert_bias(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[1]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}
Status launch_expert_bias(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_bias_forward_async(backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0]});
}

Specs infer_expert_bias_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"db", in[4]->shape, in[4]->dtype}};
}
double flops_expert_bias_backward(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[1]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}
Status launch_expert_bias_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_bias_backward_async(
      backend, stream, {c.in[0], c.in[1], c.in[2], c.in[3], c.out[0], accumulates(c, 0)});
}

Specs infer_expert_bias_backward_weights(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dweights", in[2]->shape}};
}
double flops_expert_bias_backward_weights(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[2]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}
Status launch_expert_bias_backward_weights(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_bias_backward_weights_async(backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0]});
}

}  // namespace

Value Builder::router_bias(Value logits, Value bias) { return op(Op::router_bias, {logits, bias}); }
Value Builder::expert_bias(Value biases, const Routed& routed, const RoutedRows& rows) {
  return op(Op::expert_bias, {biases, routed.weights, routed.experts, rows.offsets, rows.source});
}

constinit const OpDef detail::op_defs::router_bias = {
    .n_in = 2,
    .infer_outputs = infer_router_bias,
    .vjp = vjp_router_bias,
    .flops = per_element,
    .launch = launch_router_bias,
};
constinit const OpDef detail::op_defs::expert_bias = {
    .n_in = 5,
    .infer_outputs = infer_expert_bias,
    .vjp = vjp_expert_bias,
    .flops = flops_expert_bias,
    .launch = launch_expert_bias,
};
constinit const OpDef detail::op_defs::expert_bias_backward = {
    .n_in = 5,
    .shape_only_in = 4,
    .infer_outputs = infer_expert_bias_backward,
    .flops = flops_expert_bias_backward,
    .launch = launch_expert_bias_backward,
};
constinit const OpDef detail::op_defs::expert_bias_backward_weights = {
    .n_in = 3,
    .infer_outputs = infer_expert_bias_backward_weights,
    .flops = flops_expert_bias_backward_weights,
    .launch = launch_expert_bias_backward_weights,
};

}  // namespace strata

#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// sigmoid_gate, silu_gate: (x, gate) -> y = x sigmoid(gate), or x silu(gate), all of one shape and dtype
// sigmoid_gate_backward, silu_gate_backward: (x, gate, dy) -> dx, dgate

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_sigmoid_gate(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("x [T, n] and a gate for each element", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
template <Op kBackward>
void vjp_sigmoid_gate(VjpContext& c) {
  c.emit(kBackward, {c.in(0), c.in(1), c.grad_output(0)}, {0, 1}, c.attrs());
}
template <bool kSilu>
Status launch_sigmoid_gate(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::sigmoid_gate_forward_async(backend, stream, {c.in[0], c.in[1], c.out[0], kSilu});
}

Specs infer_sigmoid_gate_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", in[0]->shape, in[0]->dtype}, {"dgate", in[0]->shape, in[0]->dtype}};
}
template <bool kSilu>
Status launch_sigmoid_gate_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::sigmoid_gate_backward_async(backend, stream,
                                              {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], kSilu});
}

template <bool kSilu>
constexpr OpDef sigmoid_gate_def() {
  return {
      .n_in = 2,
      .infer_outputs = infer_sigmoid_gate,
      .vjp = vjp_sigmoid_gate < kSilu ? Op::silu_gate_backward : Op::sigmoid_gate_backward >
      , .flops = per_element, .launch = launch_sigmoid_gate<kSilu>, .shard = shard_elementwise,
  };
}
template <bool kSilu>
constexpr OpDef sigmoid_gate_backward_def() {
  return {
      .n_in = 3,
      .infer_outputs = infer_sigmoid_gate_backward,
      .in_place = {.out = 0, .in = 0},
      .flops = per_element,
      .launch = launch_sigmoid_gate_backward<kSilu>,
      .adds_to_gradients = false,
  };
}

}  // namespace

Value Builder::sigmoid_gate(Value x, Value gate) { return op(Op::sigmoid_gate, {x, gate}, NoAttrs{}); }
Value Builder::silu_gate(Value x, Value gate) { return op(Op::silu_gate, {x, gate}, NoAttrs{}); }

constinit const OpDef detail::op_defs::sigmoid_gate = sigmoid_gate_def<false>();
constinit const OpDef detail::op_defs::sigmoid_gate_backward = sigmoid_gate_backward_def<false>();
constinit const OpDef detail::op_defs::silu_gate = sigmoid_gate_def<true>();
constinit const OpDef detail::op_defs::silu_gate_backward = sigmoid_gate_backward_def<true>();

}  // namespace strata

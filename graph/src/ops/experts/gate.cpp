#include <strata/kernels/experts/gate.h>

#include "ops/op_defs.h"

// expert_gate: (gate_up [R, 2 F] or [R, F] by the gate, weights [T, k] f32, source [R] i32 or none) -> a [R,
// F]; R = T k. Without a source,
//   the rows are the choices in order.
// expert_gate_backward: (gate_up, weights, source, da [R, F]) -> dgate_up, dweights

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_expert_gate(In in, const Attrs& attrs) {
  const std::int64_t parts = attrs.as<ExpertGateAttrs>().gate.parts();
  if (!is_matrix(in[0]) || in[0]->shape.dim(1) % parts != 0 || !is_matrix(in[1]) ||
      in[1]->dtype != DType::f32 || in[1]->shape.n_elems() != in[0]->shape.dim(0) ||
      (in[2] != nullptr && !has_type(in[2], {in[0]->shape.dim(0)}, DType::i32)))
    return mismatch(
        "gate_up [T k, 2 F] (or [T k, F] of a gate without ups), weights [T, k] f32, source [T k] i32 or "
        "none",
        in);
  return std::vector<OutputSpec>{{"a", {in[0]->shape.dim(0), in[0]->shape.dim(1) / parts}, in[0]->dtype}};
}
void vjp_expert_gate(VjpContext& c) {
  c.emit(Op::expert_gate_backward, {c.in(0), c.in(1), c.in(2), c.grad_output(0)}, {0, 1}, c.attrs());
}
Status launch_expert_gate(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_gate_forward_async(
      backend, stream, {c.in[0], c.in[1], or_none(c.in[2]), c.out[0], c.attrs.as<ExpertGateAttrs>().gate});
}

Specs infer_expert_gate_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dgate_up", in[0]->shape, in[0]->dtype}, {"dweights", in[1]->shape}};
}
Status launch_expert_gate_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_gate_backward_async(
      backend, stream,
      {c.in[0], c.in[1], or_none(c.in[2]), c.in[3], c.out[0], c.out[1], c.attrs.as<ExpertGateAttrs>().gate});
}

}  // namespace

Value Builder::expert_gate(Value gate_up, Value weights, Value source, const kernels::ExpertGate& gate) {
  return op(Op::expert_gate, {gate_up, weights, source}, ExpertGateAttrs{.gate = gate});
}

constinit const OpDef detail::op_defs::expert_gate = {
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_expert_gate,
    .vjp = vjp_expert_gate,
    .flops = per_element,
    .launch = launch_expert_gate,
};
constinit const OpDef detail::op_defs::expert_gate_backward = {
    .n_in = 4,
    .optional_in = 2,
    .infer_outputs = infer_expert_gate_backward,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_expert_gate_backward,
};

}  // namespace strata

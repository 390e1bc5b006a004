#include <strata/kernels/recurrent/scan_gates.h>

#include "ops/op_defs.h"

// scan_gates: (dt [T, H], a_log [H] f32, dt_bias [H] f32) -> step [T, H] f32, g [T, H] f32
// scan_gates_backward: (dt, a_log, dt_bias, dstep or none, dg or none) -> ddt, da_log, ddt_bias, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const kernels::StepLimits& step_limits(const Attrs& attrs) { return attrs.as<ScanGatesAttrs>().limits; }

Specs infer_scan_gates(In in, const Attrs&) {
  const bool fits =
      is_matrix(in[0]) && has_type(in[1], {in[0]->shape.dim(1)}) && has_type(in[2], {in[0]->shape.dim(1)});
  if (!fits) return mismatch("dt [T, H], a_log [H] f32, dt_bias [H] f32", in);
  return std::vector<OutputSpec>{{"step", in[0]->shape}, {"g", in[0]->shape}};
}
void vjp_scan_gates(VjpContext& c) {
  c.emit(Op::scan_gates_backward, {c.in(0), c.in(1), c.in(2), c.grad_output(0), c.grad_output(1)},
         {0, 1, 2, -1}, c.attrs());
}
Status launch_scan_gates(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scan_gates_forward_async(
      backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], step_limits(c.attrs)});
}

Specs infer_scan_gates_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"ddt", in[0]->shape, in[0]->dtype},
      {"da_log", in[1]->shape},
      {"ddt_bias", in[2]->shape},
      workspace(kernels::scan_gates_backward_workspace_bytes(in[0]->shape.dim(0), in[1]->shape.n_elems()))};
}
Status launch_scan_gates_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scan_gates_backward_async(backend, stream,
                                            {.dt = c.in[0],
                                             .a_log = c.in[1],
                                             .dt_bias = c.in[2],
                                             .dstep = or_none(c.in[3]),
                                             .dg = or_none(c.in[4]),
                                             .ddt = c.out[0],
                                             .da_log = c.out[1],
                                             .ddt_bias = c.out[2],
                                             .limits = step_limits(c.attrs),
                                             .accumulate_da_log = accumulates(c, 1),
                                             .accumulate_ddt_bias = accumulates(c, 2),
                                             .workspace = as_workspace(c.out[3])});
}

}  // namespace

ScanGates Builder::scan_gates(Value dt, Value a_log, Value dt_bias, const kernels::StepLimits& limits) {
  const Value step = op(Op::scan_gates, {dt, a_log, dt_bias}, ScanGatesAttrs{.limits = limits});
  return {step, output(step, 1)};
}

constinit const OpDef detail::op_defs::scan_gates = {
    .n_in = 3,
    .infer_outputs = infer_scan_gates,
    .vjp = vjp_scan_gates,
    .flops = per_element,
    .launch = launch_scan_gates,
};
constinit const OpDef detail::op_defs::scan_gates_backward = {
    .n_in = 5,
    .optional_in = {3, 4},
    .infer_outputs = infer_scan_gates_backward,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_scan_gates_backward,
};

}  // namespace strata

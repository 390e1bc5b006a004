#include <strata/kernels/recurrent/delta_gates.h>

#include "ops/op_defs.h"

// delta_gates: (ba [T, 2 H], a_log [H] f32, dt_bias [H] f32) -> g [T, H] f32, beta [T, H] f32
// delta_gates_backward: (ba, a_log, dt_bias, dg or none, dbeta or none) -> dba, da_log, ddt_bias, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_delta_gates(In in, const Attrs&) {
  const bool fits = is_matrix(in[0]) && in[0]->shape.dim(1) % 2 == 0 &&
                    has_type(in[1], {in[0]->shape.dim(1) / 2}) && has_type(in[2], {in[0]->shape.dim(1) / 2});
  if (!fits) return mismatch("ba [T, 2 H], a_log [H] f32, dt_bias [H] f32", in);
  const Shape gate = {in[0]->shape.dim(0), in[0]->shape.dim(1) / 2};
  return std::vector<OutputSpec>{{"g", gate}, {"beta", gate}};
}
void vjp_delta_gates(VjpContext& c) {
  c.emit(Op::delta_gates_backward, {c.in(0), c.in(1), c.in(2), c.grad_output(0), c.grad_output(1)},
         {0, 1, 2, -1});
}
Status launch_delta_gates(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::delta_gates_forward_async(backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1]});
}

Specs infer_delta_gates_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"dba", in[0]->shape, in[0]->dtype},
      {"da_log", in[1]->shape},
      {"ddt_bias", in[2]->shape},
      workspace(kernels::delta_gates_backward_workspace_bytes(in[0]->shape.dim(0), in[1]->shape.n_elems()))};
}
Status launch_delta_gates_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::delta_gates_backward_async(backend, stream,
                                             {.ba = c.in[0],
                                              .a_log = c.in[1],
                                              .dt_bias = c.in[2],
                                              .dg = or_none(c.in[3]),
                                              .dbeta = or_none(c.in[4]),
                                              .dba = c.out[0],
                                              .da_log = c.out[1],
                                              .ddt_bias = c.out[2],
                                              .accumulate_da_log = accumulates(c, 1),
                                              .accumulate_ddt_bias = accumulates(c, 2),
                                              .workspace = as_workspace(c.out[3])});
}

}  // namespace

DeltaGates Builder::delta_gates(Value ba, Value a_log, Value dt_bias) {
  const Value g = op(Op::delta_gates, {ba, a_log, dt_bias});
  return {g, output(g, 1)};
}

constinit const OpDef detail::op_defs::delta_gates = {
    .n_in = 3,
    .infer_outputs = infer_delta_gates,
    .vjp = vjp_delta_gates,
    .flops = per_element,
    .launch = launch_delta_gates,
};
constinit const OpDef detail::op_defs::delta_gates_backward = {
    .n_in = 5,
    .optional_in = {3, 4},
    .infer_outputs = infer_delta_gates_backward,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_delta_gates_backward,
};

}  // namespace strata

#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// gelu: (x) -> y
// gelu_backward: (x, dy) -> dx

namespace strata {
namespace {

using namespace detail::op_rules;

void vjp_gelu(VjpContext& c) { c.emit(Op::gelu_backward, {c.in(0), c.grad_output(0)}, {0}); }
Status launch_gelu(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::gelu_forward_async(backend, stream, {c.in[0], c.out[0]});
}
Status launch_gelu_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::gelu_backward_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

}  // namespace

Value Builder::gelu(Value x) { return op(Op::gelu, {x}); }

constinit const OpDef detail::op_defs::gelu = {
    .n_in = 1,
    .infer_outputs = infer_elementwise,
    .vjp = vjp_gelu,
    .flops = per_element,
    .launch = launch_gelu,
    .shard = shard_elementwise,
    .operand_columns = same_columns,
};
constinit const OpDef detail::op_defs::gelu_backward = {
    .n_in = 2,
    .infer_outputs = infer_elementwise_backward,
    .in_place = {.out = 0, .in = 1},
    .flops = per_element,
    .launch = launch_gelu_backward,
};

}  // namespace strata

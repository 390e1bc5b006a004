#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// relu: (x) -> y
// relu_backward: (x, dy) -> dx

namespace strata {
namespace {

using namespace detail::op_rules;

void vjp_relu(VjpContext& c) { c.emit(Op::relu_backward, {c.in(0), c.grad_output(0)}, {0}); }
Status launch_relu(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::relu_forward_async(backend, stream, {c.in[0], c.out[0]});
}
Status launch_relu_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::relu_backward_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

}  // namespace

Value Builder::relu(Value x) { return op(Op::relu, {x}); }

constinit const OpDef detail::op_defs::relu = {
    .n_in = 1,
    .infer_outputs = infer_elementwise,
    .vjp = vjp_relu,
    .flops = no_flops,
    .launch = launch_relu,
    .shard = shard_elementwise,
    .operand_columns = same_columns,
};
constinit const OpDef detail::op_defs::relu_backward = {
    .n_in = 2,
    .infer_outputs = infer_elementwise_backward,
    .in_place = {.out = 0, .in = 1},
    .flops = no_flops,
    .launch = launch_relu_backward,
};

}  // namespace strata

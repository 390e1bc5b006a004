#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// multiply: (a, b) -> y = a b, all of one shape and dtype. Its derivative consists of two products.

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_multiply(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("two matrices of one shape and dtype", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_multiply(VjpContext& c) {
  c.emit(Op::multiply, {c.grad_output(0), c.in(1)}, {0}, c.attrs());
  c.emit(Op::multiply, {c.grad_output(0), c.in(0)}, {1}, c.attrs());
}
Status launch_multiply(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::multiply_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

}  // namespace

Value Builder::multiply(Value a, Value b) { return op(Op::multiply, {a, b}, NoAttrs{}); }

constinit const OpDef detail::op_defs::multiply = {
    .n_in = 2,
    .infer_outputs = infer_multiply,
    .vjp = vjp_multiply,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_multiply,
    .adds_to_gradients = false,
    .shard = shard_elementwise,
};

}  // namespace strata

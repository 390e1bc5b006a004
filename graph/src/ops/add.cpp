#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// add: (a, b) -> y = a + b

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_add(In in, const Attrs&) {
  if (in[0] == nullptr || !is_stored_dtype(in[0]->dtype) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("two equal shapes of one dtype", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_add(VjpContext& c) {
  c.propagate_grad(0, c.grad_output(0));
  c.propagate_grad(1, c.grad_output(0));
}
Status launch_add(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::add_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

}  // namespace

Value Builder::add(Value a, Value b) { return op(Op::add, {a, b}); }

constinit const OpDef detail::op_defs::add = {
    .n_in = 2,
    .infer_outputs = infer_add,
    .vjp = vjp_add,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_add,
    .shard = shard_linear_elementwise,
    .operand_columns = same_columns,
};

}  // namespace strata

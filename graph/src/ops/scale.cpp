#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// scale: (x) -> y = factor x

namespace strata {
namespace {

using namespace detail::op_rules;

void vjp_scale(VjpContext& c) { c.emit(Op::scale, {c.grad_output(0)}, {0}, c.attrs()); }
Status launch_scale(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_async(backend, stream, {c.in[0], c.out[0], c.attrs.as<ScaleAttrs>().factor});
}

}  // namespace

Value Builder::scale(Value x, float factor) { return op(Op::scale, {x}, ScaleAttrs{.factor = factor}); }

constinit const OpDef detail::op_defs::scale = {
    .n_in = 1,
    .infer_outputs = infer_elementwise,
    .vjp = vjp_scale,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_scale,
    .shard = shard_linear_elementwise,
    .operand_columns = same_columns,
};

}  // namespace strata

#include <strata/kernels/adapters/dropout.h>

#include "ops/op_defs.h"

// dropout: (x [T, N], keys [T, 2] i32) -> y; its derivative is the same on dy.

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_dropout(In in, const Attrs& attrs) {
  const float p = attrs.as<DropoutAttrs>().p;
  if (!(p >= 0 && p < 1) || !is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(0), 2}, DType::i32))
    return mismatch("x [T, N], keys [T, 2] i32 and a share of 0 to below 1", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_dropout(VjpContext& c) { c.emit(Op::dropout, {c.grad_output(0), c.in(1)}, {0}, c.attrs()); }
Status launch_dropout(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<DropoutAttrs>();
  return kernels::dropout_async(backend, stream, {c.in[0], c.in[1], c.out[0], a.p, a.stream});
}

}  // namespace

Value Builder::dropout(Value x, Value keys, float p, std::uint32_t stream) {
  return op(Op::dropout, {x, keys}, DropoutAttrs{.p = p, .stream = stream});
}

constinit const OpDef detail::op_defs::dropout = {
    .n_in = 2,
    .infer_outputs = infer_dropout,
    .vjp = vjp_dropout,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_dropout,
};

}  // namespace strata

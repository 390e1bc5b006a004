#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// swiglu: (gate_up [T, 2f]) -> y [T, f]
// swiglu_backward: (gate_up, dy) -> dgate_up

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_swiglu(In in, const Attrs&) {
  if (!is_matrix(in[0]) || in[0]->shape.dim(1) % 2 != 0) return mismatch("gate_up [T, 2f]", in);
  return std::vector<OutputSpec>{{"y", {in[0]->shape.dim(0), in[0]->shape.dim(1) / 2}, in[0]->dtype}};
}
void vjp_swiglu(VjpContext& c) { c.emit(Op::swiglu_backward, {c.in(0), c.grad_output(0)}, {0}, c.attrs()); }
Status launch_swiglu(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::swiglu_forward_async(backend, stream, {c.in[0], c.out[0], c.attrs.as<SwigluAttrs>().gelu});
}

/// Gate and up, each cut like the result.
Cut gate_and_up(const ValueInfo& gate_up, const Attrs&, const Cut& out) {
  const CutSegment half = out.n == 1 ? out.segment[0] : CutSegment{gate_up.shape.dim(1) / 2, 1};
  return {{half, half}, 2};
}
std::vector<ShardStrategy> shard_swiglu(const ShardQuery& q) {
  std::vector<ShardStrategy> found = shard_rows(q);
  const Cut in = gate_and_up(*q.in[0], q.attrs, q.columns);
  found.push_back({{ShardPlacement::split(1, in)}, ShardPlacement::split(1, {{in.segment[0]}, 1})});
  return found;
}

Specs infer_swiglu_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dgate_up", in[0]->shape, in[0]->dtype}};
}
Status launch_swiglu_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::swiglu_backward_async(backend, stream,
                                        {c.in[0], c.in[1], c.out[0], c.attrs.as<SwigluAttrs>().gelu});
}

}  // namespace

Value Builder::swiglu(Value gate_up) { return op(Op::swiglu, {gate_up}, SwigluAttrs{}); }
Value Builder::geglu(Value gate_up) { return op(Op::swiglu, {gate_up}, SwigluAttrs{.gelu = true}); }

constinit const OpDef detail::op_defs::swiglu = {
    .n_in = 1,
    .infer_outputs = infer_swiglu,
    .vjp = vjp_swiglu,
    .flops = per_element,
    .launch = launch_swiglu,
    .shard = shard_swiglu,
    .operand_columns = gate_and_up,
};
constinit const OpDef detail::op_defs::swiglu_backward = {
    .n_in = 2,
    .infer_outputs = infer_swiglu_backward,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_swiglu_backward,
};

}  // namespace strata

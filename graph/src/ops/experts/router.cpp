#include <strata/kernels/experts/router.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// router_top_k: (logits [T, E] f32, bias [E] f32 or none) -> experts [T, k] i32, weights [T, k] f32
// router_top_k_backward: (logits, experts, dweights) -> dlogits [T, E]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool is_f32_matrix(const ValueInfo* info) { return is_matrix(info) && info->dtype == DType::f32; }

Specs infer_router_top_k(In in, const Attrs& attrs) {
  const std::int64_t k = attrs.as<RouterAttrs>().k;
  if (!is_f32_matrix(in[0]) || k < 1 || k > in[0]->shape.dim(1) ||
      (in[1] != nullptr && !has_type(in[1], {in[0]->shape.dim(1)})))
    return mismatch(str("logits [T, E] f32 of at least ", k, " experts, bias [E] f32 or none"), in);
  const Shape chosen = {in[0]->shape.dim(0), k};
  return std::vector<OutputSpec>{{"experts", chosen, DType::i32}, {"weights", chosen}};
}
// The choice is a constant in backward.
void vjp_router_top_k(VjpContext& c) {
  if (c.grad_output(1) == kNoValue) return;
  c.emit(Op::router_top_k_backward, {c.in(0), c.out(0), c.grad_output(1)}, {0}, c.attrs());
}
Status launch_router_top_k(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::router_top_k_async(
      backend, stream, {c.in[0], or_none(c.in[1]), c.out[0], c.out[1], c.attrs.as<RouterAttrs>().rule});
}

Specs infer_router_top_k_backward(In in, const Attrs& attrs) {
  return std::vector<OutputSpec>{{"dlogits", in[0]->shape, attrs.as<RouterAttrs>().gradient}};
}
Status launch_router_top_k_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::router_top_k_backward_async(
      backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0], c.attrs.as<RouterAttrs>().rule});
}

}  // namespace

Routed Builder::router_top_k(Value logits, std::int32_t k, const kernels::RouterRule& rule, Value bias) {
  const Value experts =
      op(Op::router_top_k, {logits, bias}, RouterAttrs{.rule = rule, .k = k, .gradient = compute_});
  return {experts, output(experts, 1)};
}

constinit const OpDef detail::op_defs::router_top_k = {
    .n_in = 2,
    .optional_in = 1,
    .infer_outputs = infer_router_top_k,
    .vjp = vjp_router_top_k,
    .flops = per_element,
    .launch = launch_router_top_k,
};
constinit const OpDef detail::op_defs::router_top_k_backward = {
    .n_in = 3,
    .infer_outputs = infer_router_top_k_backward,
    .flops = per_element,
    .launch = launch_router_top_k_backward,
};

}  // namespace strata

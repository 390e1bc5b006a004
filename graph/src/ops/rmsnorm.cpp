#include <strata/kernels/rmsnorm.h>

#include <array>

#include "ops/op_defs.h"

// rmsnorm: (x [T, h], weight [h]) -> y, rstd [T]
// rmsnorm_backward: (x, weight, rstd, dy, residual gradient or none) -> dx, dweight, workspace
// add_rmsnorm, which fuse_add_norm() emits after derivation:
//   (x [T, h], added [T, h], weight [h]) -> y, rstd [T], sum [T, h]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_rmsnorm(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(1)}, in[0]->dtype))
    return mismatch("x [T, h], weight [h] of one dtype", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}, {"rstd", {in[0]->shape.dim(0)}}};
}
// As for layernorm, the gradient that the residual stream has so far is added to dx in the same pass.
void vjp_rmsnorm(VjpContext& c) {
  const ValueId residual_grad = c.consume_input_grad(0);
  c.emit(Op::rmsnorm_backward, {c.in(0), c.in(1), c.out(1), c.grad_output(0), residual_grad}, {0, 1, -1},
         c.attrs());
}
Status launch_rmsnorm(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<RmsnormAttrs>();
  return kernels::rmsnorm_forward_async(
      backend, stream, {c.in[0], c.in[1], c.out[0], c.out[1], a.eps, {}, {}, a.weight_offset});
}

Specs infer_rmsnorm_backward(In in, const Attrs&) {
  if (!matches_residual(in[4], in[0]))
    return mismatch("a residual gradient with the shape and dtype of x", in);
  return std::vector<OutputSpec>{
      {"dx", in[0]->shape, in[0]->dtype},
      {"dweight", in[1]->shape, in[1]->dtype},
      workspace(kernels::rmsnorm_backward_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}
Status launch_rmsnorm_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::rmsnorm_backward_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.in[3], c.out[0], c.out[1], accumulates(c, 1), as_workspace(c.out[2]),
       residual(c, 4), c.attrs.as<RmsnormAttrs>().weight_offset});
}

Specs infer_add_rmsnorm(In in, const Attrs& attrs) {
  if (!is_matrix(in[0]) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("x and added [T, h], weight [h] of one dtype", in);
  STRATA_TRY_ASSIGN(auto outputs, infer_rmsnorm(std::array{in[0], in[2]}, attrs));
  outputs.push_back({"sum", in[0]->shape, in[0]->dtype});
  return outputs;
}
Status launch_add_rmsnorm(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<RmsnormAttrs>();
  return kernels::rmsnorm_forward_async(
      backend, stream, {c.in[0], c.in[2], c.out[0], c.out[1], a.eps, c.in[1], c.out[2], a.weight_offset});
}

}  // namespace

Value Builder::rmsnorm(Value x, Value weight, float eps, float offset) {
  return op(Op::rmsnorm, {x, weight}, RmsnormAttrs{.eps = eps, .weight_offset = offset});
}

constinit const OpDef detail::op_defs::rmsnorm = {
    .n_in = 2,
    .infer_outputs = infer_rmsnorm,
    .vjp = vjp_rmsnorm,
    .flops = per_element,
    .launch = launch_rmsnorm,
    .shard = shard_rows,
    .fused_with_add = Op::add_rmsnorm,
};
constinit const OpDef detail::op_defs::rmsnorm_backward = {
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_rmsnorm_backward,
    .in_place = {.out = 0, .in = 3},
    .flops = per_element,
    .launch = launch_rmsnorm_backward,
};
constinit const OpDef detail::op_defs::add_rmsnorm = {
    .n_in = 3,
    .infer_outputs = infer_add_rmsnorm,
    .in_place = {.out = 2, .in = 1},
    .flops = per_element,
    .launch = launch_add_rmsnorm,
};

}  // namespace strata

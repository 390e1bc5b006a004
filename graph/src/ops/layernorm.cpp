#include <strata/kernels/layernorm.h>

#include <array>

#include "ops/op_defs.h"

// layernorm: (x [T, h], weight [h], bias [h]) -> y, mean [T], rstd [T]
// layernorm_backward: (x, weight, mean, rstd, dy, residual gradient or none) -> dx, dweight, dbias, workspace
// add_layernorm, which fuse_add_norm() emits after derivation:
//   (x [T, h], added [T, h], weight [h], bias [h]) -> y, mean [T], rstd [T], sum [T, h]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_layernorm(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(1)}, in[0]->dtype) ||
      !has_type(in[2], {in[0]->shape.dim(1)}, in[0]->dtype))
    return mismatch("x [T, h], weight [h], bias [h] of one dtype", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}, {"mean", {rows}}, {"rstd", {rows}}};
}
// The residual stream bypasses the norm, so the gradient that it has so far is added to dx in the same pass.
void vjp_layernorm(VjpContext& c) {
  const ValueId residual_grad = c.consume_input_grad(0);
  c.emit(Op::layernorm_backward, {c.in(0), c.in(1), c.out(1), c.out(2), c.grad_output(0), residual_grad},
         {0, 1, 2, -1}, c.attrs());
}
Status launch_layernorm(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::layernorm_forward_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], c.out[2], c.attrs.as<LayernormAttrs>().eps});
}

Specs infer_layernorm_backward(In in, const Attrs&) {
  if (!matches_residual(in[5], in[0]))
    return mismatch("a residual gradient with the shape and dtype of x", in);
  return std::vector<OutputSpec>{
      {"dx", in[0]->shape, in[0]->dtype},
      {"dweight", in[1]->shape, in[1]->dtype},
      {"dbias", in[1]->shape, in[1]->dtype},
      workspace(kernels::layernorm_backward_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}
Status launch_layernorm_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::layernorm_backward_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0], c.out[1], c.out[2], accumulates(c, 1),
       accumulates(c, 2), as_workspace(c.out[3]), residual(c, 5)});
}

Specs infer_add_layernorm(In in, const Attrs& attrs) {
  if (!is_matrix(in[0]) || !has_type(in[1], in[0]->shape, in[0]->dtype))
    return mismatch("x and added [T, h], weight [h], bias [h] of one dtype", in);
  STRATA_TRY_ASSIGN(auto outputs, infer_layernorm(std::array{in[0], in[2], in[3]}, attrs));
  outputs.push_back({"sum", in[0]->shape, in[0]->dtype});
  return outputs;
}
Status launch_add_layernorm(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::layernorm_forward_async(backend, stream,
                                          {c.in[0], c.in[2], c.in[3], c.out[0], c.out[1], c.out[2],
                                           c.attrs.as<LayernormAttrs>().eps, c.in[1], c.out[3]});
}

}  // namespace

Value Builder::layernorm(Value x, Value weight, Value bias, float eps) {
  return op(Op::layernorm, {x, weight, bias}, LayernormAttrs{.eps = eps});
}

constinit const OpDef detail::op_defs::layernorm = {
    .n_in = 3,
    .infer_outputs = infer_layernorm,
    .vjp = vjp_layernorm,
    .flops = per_element,
    .launch = launch_layernorm,
    .shard = shard_rows,
    .fused_with_add = Op::add_layernorm,
};
constinit const OpDef detail::op_defs::layernorm_backward = {
    .n_in = 6,
    .optional_in = 5,
    .infer_outputs = infer_layernorm_backward,
    .flops = per_element,
    .launch = launch_layernorm_backward,
};
constinit const OpDef detail::op_defs::add_layernorm = {
    .n_in = 4,
    .infer_outputs = infer_add_layernorm,
    .in_place = {.out = 3, .in = 1},
    .flops = per_element,
    .launch = launch_add_layernorm,
};

}  // namespace strata

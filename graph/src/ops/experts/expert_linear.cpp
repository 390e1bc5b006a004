#include <strata/kernels/experts/expert_linear.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "ops/experts/expert_blocks.h"
#include "ops/op_defs.h"

// The weight has the matrices of B of E experts, whose rows an op writes. Another block's op follows with the
// result of the one before, into whose memory it writes.
// expert_linear: (x [R, K], w [B, N, K], offsets [E + 1] i32, b [B, N] or none, y of the block before or
// none)
//   -> y [R, N], workspace
// expert_linear_backward_input: (dy [R, N], w, offsets, dx of the block before or none) -> dx [R, K],
// workspace expert_linear_backward_weight: (dy, x, offsets, w for its shape) -> dw
// expert_linear_backward_bias: (dy, offsets, b for its shape) -> db

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::has_experts;
using detail::keep_other_rows;
using detail::rows_of_block;

bool are_matrices(const ValueInfo* w) {
  return w != nullptr && w->shape.rank == 3 && is_stored_dtype(w->dtype);
}
kernels::ExpertShape expert_shape(const ValueInfo* rows, const Shape& w) {
  return {rows->shape.dim(0), w.dim(0), w.dim(1), w.dim(2), rows->dtype};
}

Specs infer_expert_linear(In in, const Attrs& attrs) {
  if (!is_matrix(in[0]) || !are_matrices(in[1]) || in[0]->shape.dim(1) != in[1]->shape.dim(2) ||
      in[0]->dtype != in[1]->dtype ||
      !has_experts(in[2], in[1]->shape.dim(0), attrs.as<ExpertBlockAttrs>().first) ||
      (in[3] != nullptr && !has_type(in[3], {in[1]->shape.dim(0), in[1]->shape.dim(1)}, in[0]->dtype)) ||
      (in[4] != nullptr && !has_type(in[4], {in[0]->shape.dim(0), in[1]->shape.dim(1)}, in[0]->dtype)))
    return mismatch(
        "x [R, K], weights [B, N, K] of its dtype, offsets [E + 1] i32, biases [B, N] of its dtype or none, "
        "y of the block before or none",
        in);
  return std::vector<OutputSpec>{
      {"y", {in[0]->shape.dim(0), in[1]->shape.dim(1)}, in[0]->dtype},
      workspace(kernels::expert_linear_forward_workspace_bytes(expert_shape(in[0], in[1]->shape)))};
}
void vjp_expert_linear(VjpContext& c) {
  STRATA_ASSERT(c.in(4) == kNoValue, "the derivative of a block of experts is not needed: split_experts()");
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(3)) c.emit(Op::expert_linear_backward_bias, {dy, c.in(2), c.in(3)}, {3}, c.attrs());
  if (c.needs_input_grad(1))
    c.emit(Op::expert_linear_backward_weight, {dy, c.in(0), c.in(2), c.in(1)}, {1}, c.attrs());
  if (c.needs_input_grad(0))
    c.emit(Op::expert_linear_backward_input, {dy, c.in(1), c.in(2), kNoValue}, {0, -1}, c.attrs());
}
double flops_expert_linear(In in, In, const Attrs&) {
  const Shape& w = in[1]->shape;
  return 2.0 * rows_of_block(in[0], in[2], w.dim(0)) * static_cast<double>(w.dim(1) * w.dim(2));
}
Status launch_expert_linear(const OpCall& c, Backend& backend, Stream& stream) {
  STRATA_TRY(keep_other_rows(backend, stream, c.out[0], or_none(c.in[4])));
  return kernels::expert_linear_forward_async(backend, stream,
                                              {.x = c.in[0],
                                               .w = c.in[1],
                                               .b = or_none(c.in[3]),
                                               .offsets = c.in[2],
                                               .y = c.out[0],
                                               .first = c.attrs.as<ExpertBlockAttrs>().first,
                                               .workspace = as_workspace(c.out[1])});
}

Specs infer_expert_linear_backward_input(In in, const Attrs& attrs) {
  if (!is_matrix(in[0]) || !are_matrices(in[1]) || in[0]->shape.dim(1) != in[1]->shape.dim(1) ||
      !has_experts(in[2], in[1]->shape.dim(0), attrs.as<ExpertBlockAttrs>().first) ||
      (in[3] != nullptr && !has_type(in[3], {in[0]->shape.dim(0), in[1]->shape.dim(2)}, in[0]->dtype)))
    return mismatch("dy [R, N], weights [B, N, K], offsets [E + 1] i32, dx of the block before or none", in);
  return std::vector<OutputSpec>{
      {"dx", {in[0]->shape.dim(0), in[1]->shape.dim(2)}, in[0]->dtype},
      workspace(kernels::expert_linear_backward_input_workspace_bytes(expert_shape(in[0], in[1]->shape)))};
}
Status launch_expert_linear_backward_input(const OpCall& c, Backend& backend, Stream& stream) {
  STRATA_TRY(keep_other_rows(backend, stream, c.out[0], or_none(c.in[3])));
  return kernels::expert_linear_backward_input_async(backend, stream,
                                                     {.dy = c.in[0],
                                                      .w = c.in[1],
                                                      .offsets = c.in[2],
                                                      .dx = c.out[0],
                                                      .first = c.attrs.as<ExpertBlockAttrs>().first,
                                                      .workspace = as_workspace(c.out[1])});
}

Specs infer_expert_linear_backward_weight(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dw", in[3]->shape, in[3]->dtype}};
}
double flops_expert_linear_backward_weight(In in, In, const Attrs&) {
  const Shape& w = in[3]->shape;
  return 2.0 * rows_of_block(in[0], in[2], w.dim(0)) * static_cast<double>(w.dim(1) * w.dim(2));
}
Status launch_expert_linear_backward_weight(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_linear_backward_weight_async(backend, stream,
                                                      {.dy = c.in[0],
                                                       .x = c.in[1],
                                                       .offsets = c.in[2],
                                                       .dw = c.out[0],
                                                       .first = c.attrs.as<ExpertBlockAttrs>().first,
                                                       .accumulate = accumulates(c, 0)});
}

Specs infer_expert_linear_backward_bias(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"db", in[2]->shape, in[2]->dtype}};
}
Status launch_expert_linear_backward_bias(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::expert_linear_backward_bias_async(backend, stream,
                                                    {.dy = c.in[0],
                                                     .offsets = c.in[1],
                                                     .db = c.out[0],
                                                     .first = c.attrs.as<ExpertBlockAttrs>().first,
                                                     .accumulate = accumulates(c, 0)});
}

}  // namespace

Value Builder::expert_linear(Value x, Value weights, const RoutedRows& rows, Value biases) {
  // A model has the matrices of all experts; blocks of them are split_experts()'s.
  if (error_.is_ok() && weights.id != kNoValue && rows.offsets.id != kNoValue) {
    const Shape &w = program_.value(weights.id).shape, &offsets = program_.value(rows.offsets.id).shape;
    if (w.rank == 3 && w.dim(0) + 1 != offsets.dim(0))
      error_ = Status::error(Code::invalid, str(program_.value(weights.id).name, " has the matrices of ",
                                                w.dim(0), " experts; rows go to ", offsets.dim(0) - 1));
  }
  return op(Op::expert_linear, {x, weights, rows.offsets, biases, {}}, ExpertBlockAttrs{});
}

constinit const OpDef detail::op_defs::expert_linear = {
    .kind = OpKind::expert_gemm,
    .n_in = 5,
    .optional_in = {3, 4},
    .infer_outputs = infer_expert_linear,
    .vjp = vjp_expert_linear,
    .in_place = {.out = 0, .in = 4},
    .flops = flops_expert_linear,
    .launch = launch_expert_linear,
};
constinit const OpDef detail::op_defs::expert_linear_backward_input = {
    .kind = OpKind::expert_gemm,
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_expert_linear_backward_input,
    .in_place = {.out = 0, .in = 3},
    .flops = flops_expert_linear,
    .launch = launch_expert_linear_backward_input,
};
constinit const OpDef detail::op_defs::expert_linear_backward_weight = {
    .kind = OpKind::expert_gemm,
    .n_in = 4,
    .shape_only_in = 3,
    .infer_outputs = infer_expert_linear_backward_weight,
    .flops = flops_expert_linear_backward_weight,
    .launch = launch_expert_linear_backward_weight,
};
constinit const OpDef detail::op_defs::expert_linear_backward_bias = {
    .n_in = 3,
    .shape_only_in = 2,
    .infer_outputs = infer_expert_linear_backward_bias,
    .flops = no_flops,
    .launch = launch_expert_linear_backward_bias,
};

}  // namespace strata

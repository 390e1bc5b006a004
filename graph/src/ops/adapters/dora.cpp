#include <strata/kernels/dora.h>

#include <strata/runtime/str.h>

#include "ops/adapters/lora_parts.h"
#include "ops/op_defs.h"

// dora_norm: (w [N, K] or its quantized bytes, a [ranks, K], b [elements of all parts]) -> norm [rows of all
// parts] f32, workspace. It has no derivative: the norm is a constant in backward.
// scale_columns: (x [T, N], m [rows] f32, norm [rows] f32, bias [N] or none) -> y [T, N]
// scale_columns_backward_weight: (dy [T, N], x [T, N], norm, m for its shape) -> dm [rows] f32, workspace
// The gradient of x is dy with its columns scaled in the same way.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::PartSizes;
using detail::sizes_of;

Specs infer_dora_norm(In in, const Attrs& attrs) {
  const auto& a = attrs.as<DoraNormAttrs>();
  const bool is_quantized = a.matrix.format != kernels::WeightFormat::full;
  if (!is_matrix(in[1])) return mismatch("a [ranks, K]", in);
  const std::int64_t columns = in[1]->shape.dim(1);
  const std::int64_t rows = is_quantized ? a.matrix.rows() : is_matrix(in[0]) ? in[0]->shape.dim(0) : 0;
  const bool fits = is_quantized
                        ? has_type(in[0], {a.matrix.bytes()}, DType::u8) && a.matrix.columns == columns
                        : has_type(in[0], {rows, columns}, in[1]->dtype);
  const PartSizes sizes = sizes_of(a.parts, rows);
  if (!fits || !sizes.in_order || in[1]->shape.dim(0) != sizes.ranks ||
      !has_type(in[2], {sizes.elems}, in[1]->dtype))
    return mismatch(
        str("a matrix of the inner extent ", columns, ", a [", sizes.ranks, ", ", columns, "], b [",
            sizes.elems, "], of one dtype, and ", a.parts.n, " parts in the order of their rows"),
        in);
  return std::vector<OutputSpec>{
      {"norm", {sizes.rows}},
      workspace(kernels::dora_norm_workspace_bytes(a.parts, columns, a.matrix, in[1]->dtype))};
}
// The matrix is multiplied by A, and each of its values is squared.
double flops_dora_norm(In in, In, const Attrs& attrs) {
  const LoraAttrs& parts = attrs.as<DoraNormAttrs>().parts;
  double flops = 0;
  for (const LoraPart& part : parts.all())
    flops += 2.0 * static_cast<double>(part.rows) * static_cast<double>(part.rank + 1);
  return flops * static_cast<double>(in[1]->shape.dim(1));
}
Status launch_dora_norm(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<DoraNormAttrs>();
  return kernels::dora_norm_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.out[0], as_workspace(c.out[1]), a.parts, a.scale, a.matrix});
}

Specs infer_scale_columns(In in, const Attrs& attrs) {
  if (!is_matrix(in[0])) return mismatch("x [T, N]", in);
  const std::int64_t columns = in[0]->shape.dim(1);
  const PartSizes sizes = sizes_of(attrs.as<LoraAttrs>(), columns);
  if (!sizes.in_order || !has_type(in[1], {sizes.rows}) || !has_type(in[2], {sizes.rows}) ||
      (in[3] != nullptr && !has_type(in[3], {columns}, in[0]->dtype)))
    return mismatch(str("x [T, N], m and norm f32 [", sizes.rows,
                        "], bias [N] of the dtype of x or none, and parts in the order of their rows"),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_scale_columns(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(3)) c.emit(Op::linear_backward_bias, {dy, c.in(3)}, {3, -1});
  if (c.needs_input_grad(1))
    c.emit(Op::scale_columns_backward_weight, {dy, c.in(0), c.in(2), c.in(1)}, {1, -1}, c.attrs());
  if (c.needs_input_grad(0)) c.emit(Op::scale_columns, {dy, c.in(1), c.in(2), kNoValue}, {0}, c.attrs());
}
Status launch_scale_columns(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_columns_async(
      backend, stream, {c.in[0], c.in[1], c.in[2], or_none(c.in[3]), c.out[0], c.attrs.as<LoraAttrs>()});
}

Specs infer_scale_columns_backward_weight(In in, const Attrs&) {
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{
      {"dm", in[3]->shape},
      workspace(kernels::scale_columns_backward_workspace_bytes(rows, in[3]->shape.dim(0)))};
}
Status launch_scale_columns_backward_weight(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_columns_backward_weight_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.out[0], as_workspace(c.out[1]), c.attrs.as<LoraAttrs>(),
       accumulates(c, 0)});
}

}  // namespace

Value Builder::dora_norm(Value weight, Value a, Value b, const LoraAttrs& parts, float scale) {
  return op(Op::dora_norm, {weight, a, b}, DoraNormAttrs{.parts = parts, .scale = scale});
}
Value Builder::scale_columns(Value x, Value magnitudes, Value norms, Value bias, const LoraAttrs& parts) {
  return op(Op::scale_columns, {x, magnitudes, norms, bias}, parts);
}

// Reading the matrix is its time, as the rank is small.
constinit const OpDef detail::op_defs::dora_norm = {
    .n_in = 3,
    .infer_outputs = infer_dora_norm,
    .flops = flops_dora_norm,
    .launch = launch_dora_norm,
};
constinit const OpDef detail::op_defs::scale_columns = {
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_scale_columns,
    .vjp = vjp_scale_columns,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_scale_columns,
};
constinit const OpDef detail::op_defs::scale_columns_backward_weight = {
    .n_in = 4,
    .shape_only_in = 3,
    .infer_outputs = infer_scale_columns_backward_weight,
    .flops = per_element,
    .launch = launch_scale_columns_backward_weight,
};

}  // namespace strata

#include <strata/kernels/linear.h>

#include "ops/op_defs.h"

// linear: (x [T, K], w [N, K], b [N] or none) -> y [T, N]
// linear_backward_input: (dy [T, N], w [N, K]) -> dx [T, K]; forward, the product with w as it is stored
// linear_backward_weight: (dy [T, N], x [T, K], w for its shape) -> dw [N, K]
// linear_backward_bias: (dy [T, N], b for its shape) -> db [N], workspace
// The first three are GEMMs, whose last output is their workspace if they have one.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_linear(In in, const Attrs& attrs) {
  const auto& a = attrs.as<LinearAttrs>();
  if (!is_matrix(in[0]) || !is_matrix(in[1]) || in[0]->shape.dim(1) != in[1]->shape.dim(1) ||
      in[0]->dtype != in[1]->dtype ||
      (in[2] != nullptr && !has_type(in[2], {in[1]->shape.dim(0)}, in[0]->dtype)))
    return mismatch("x [T, K], weight [N, K], bias [N] or none, of one dtype", in);
  return gemm_output("y", {in[0]->shape.dim(0), in[1]->shape.dim(0)}, a.f32_out ? DType::f32 : in[0]->dtype,
                     a.gemm);
}
// The gradient of an f32 result of 16-bit operands has their dtype, and is no more to be quantized than the
// result.
void vjp_linear(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  const LinearAttrs attrs{.f32_out = c.attrs().as<LinearAttrs>().f32_out};
  if (c.needs_input_grad(2)) c.emit(Op::linear_backward_bias, {dy, c.in(2)}, {2, -1});
  if (c.needs_input_grad(1)) c.emit(Op::linear_backward_weight, {dy, c.in(0), c.in(1)}, {1}, attrs);
  if (c.needs_input_grad(0)) c.emit(Op::linear_backward_input, {dy, c.in(1)}, {0}, attrs);
}
Status launch_linear(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_forward_async(
      backend, stream, {c.in[0], c.in[1], or_none(c.in[2]), c.out[0], workspace_or_none(c, 1)});
}

// y of all rows, where each rank has some: while a rank multiplies the rows of one, they travel on to its
// neighbour, so that the gather takes no time of its own if a hop takes no longer than the GEMM of a slice
// (Cheng et al. 2024, FastSeq of Colossal-AI).
std::vector<ValueId> lower_sliced_linear(const Instr& on_shards, const ShardAxis& axis, ShardedCode& code) {
  ValueId rows = on_shards.in[0], whole = kNoValue;
  for (int hop = 0; hop < axis.ranks; ++hop) {
    const bool is_last = hop + 1 == axis.ranks;
    const CollectiveAttrs shift = {.axis = axis.number,
                                   .ranks = axis.ranks,
                                   .rank = axis.rank,
                                   .step = 1,
                                   .number = is_last ? 0 : code.new_number()};
    const ValueId next = is_last ? kNoValue : code.add(Op::shift_begin, {rows}, shift).front();
    const ValueId y = code.add(Op::linear, {rows, on_shards.in[1], on_shards.in[2]}, on_shards.attrs).front();
    const BlockAttrs block = {.block = (axis.rank + hop) % axis.ranks, .blocks = axis.ranks};
    whole = code.add(Op::put_rows, {whole, y}, block).front();
    if (!is_last) rows = code.add(Op::shift_end, {next, rows}, shift).front();
  }
  return {whole};
}

// Splits by rows of x; by rows of w, which are columns of y; and by columns of x and w, where the result is
// the sum of the ranks' products, to which rank 0 adds the bias.
std::vector<ShardStrategy> shard_linear(const ShardQuery& q) {
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0)), whole = ShardPlacement::copied();
  Cut out = q.columns.n > 0 && !q.is_split(1, 0) ? q.columns : q.cut_of(1, 0);
  if (out == Cut::even(out.extent())) out = Cut::nearly_even(out.extent(), q.axis.ranks);
  const ShardPlacement inner = ShardPlacement::split(1, q.is_split(0, 1) ? q.cut_of(0, 1) : q.cut_of(1, 1));
  const ShardPlacement rows_of_w = ShardPlacement::split(0, out), columns = ShardPlacement::split(1, out);
  std::vector<ShardStrategy> ways = {{{rows, whole, whole}, rows},
                                     {{whole, rows_of_w, rows_of_w}, columns},
                                     {{inner, inner, ShardPlacement::partial()}, ShardPlacement::partial()}};
  const bool follow = q.is_split(0, 0) && rows.cut == Cut::even(q.in[0]->shape.dim(0));
  if (!q.axis.slices_gathers || !follow) return ways;
  const double gathered = static_cast<double>(q.in[0]->bytes()) * (q.axis.ranks - 1) / q.axis.ranks;
  ways.insert(
      ways.begin(),
      ShardStrategy{{rows, rows_of_w, rows_of_w}, columns, std::nullopt, lower_sliced_linear, 2 * gathered});
  return ways;
}

Specs infer_linear_backward_input(In in, const Attrs& attrs) {
  if (!is_matrix(in[0]) || !is_matrix(in[1]) || in[0]->shape.dim(1) != in[1]->shape.dim(0))
    return mismatch("dy [T, N], weight [N, K]", in);
  return gemm_output("dx", {in[0]->shape.dim(0), in[1]->shape.dim(1)}, in[0]->dtype,
                     attrs.as<LinearAttrs>().gemm);
}
// Counts for linear_backward_input and linear_backward_weight, each of which costs as much as the forward
// GEMM.
double flops_linear_backward(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(1));
}
Status launch_linear_backward_input(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_backward_input_async(
      backend, stream, {c.in[0], c.in[1], c.out[0], accumulates(c, 0), workspace_or_none(c, 1)});
}

// The derivative of x = u w with the gradient dx is du = dx w^T and dw = u^T dx.
void vjp_linear_backward_input(VjpContext& c) {
  const ValueId dx = c.grad_output(0);
  if (c.needs_input_grad(1)) c.emit(Op::linear_backward_weight, {c.in(0), dx, c.in(1)}, {1}, LinearAttrs{});
  if (c.needs_input_grad(0)) c.emit(Op::linear, {dx, c.in(1), kNoValue}, {0}, LinearAttrs{});
}

Specs infer_linear_backward_weight(In in, const Attrs& attrs) {
  return gemm_output("dw", in[2]->shape, in[2]->dtype, attrs.as<LinearAttrs>().gemm);
}
Status launch_linear_backward_weight(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_backward_weight_async(
      backend, stream, {c.in[0], c.in[1], c.out[0], accumulates(c, 0), workspace_or_none(c, 1)});
}

Specs infer_linear_backward_bias(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"db", in[1]->shape, in[1]->dtype},
      workspace(kernels::linear_backward_bias_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}
Status launch_linear_backward_bias(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_backward_bias_async(backend, stream,
                                             {c.in[0], c.out[0], accumulates(c, 0), as_workspace(c.out[1])});
}

// y = x w^T + b, dx = dy (w^T)^T, dw = dy^T (x^T)^T
constexpr Fp8Gemm kFp8Linear = {.a = {}, .b = {.weight = true}, .bias = 2};
constexpr Fp8Gemm kFp8LinearInput = {.a = {.gradient = true}, .b = {.transposed = true, .weight = true}};
constexpr Fp8Gemm kFp8LinearWeight = {.a = {.transposed = true, .gradient = true}, .b = {.transposed = true}};

}  // namespace

Value Builder::linear(Value x, Value weight, Value bias) {
  return op(Op::linear, {x, weight, bias}, LinearAttrs{});
}
Value Builder::linear_f32(Value x, Value weight) {
  return op(Op::linear, {x, weight, {}}, LinearAttrs{.f32_out = true});
}

constinit const OpDef detail::op_defs::linear = {
    .kind = OpKind::gemm,
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_linear,
    .vjp = vjp_linear,
    .flops = gemm_flops,
    .launch = launch_linear,
    .shard = shard_linear,
    .fp8 = &kFp8Linear,
};
constinit const OpDef detail::op_defs::linear_backward_input = {
    .kind = OpKind::gemm,
    .n_in = 2,
    .infer_outputs = infer_linear_backward_input,
    .vjp = vjp_linear_backward_input,
    .flops = flops_linear_backward,
    .launch = launch_linear_backward_input,
    .fp8 = &kFp8LinearInput,
};
constinit const OpDef detail::op_defs::linear_backward_weight = {
    .kind = OpKind::gemm,
    .n_in = 3,
    .shape_only_in = 2,
    .infer_outputs = infer_linear_backward_weight,
    .flops = flops_linear_backward,
    .launch = launch_linear_backward_weight,
    .fp8 = &kFp8LinearWeight,
};
constinit const OpDef detail::op_defs::linear_backward_bias = {
    .n_in = 2,
    .shape_only_in = 1,
    .infer_outputs = infer_linear_backward_bias,
    .flops = no_flops,
    .launch = launch_linear_backward_bias,
};

}  // namespace strata

#include <strata/kernels/experts/expert_linear_quantized.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "ops/experts/expert_blocks.h"
#include "ops/op_defs.h"

// The operands are those of expert_linear, but for the weight: the bytes of the matrices of B of E experts,
// which are not trained. expert_linear_quantized: (x [R, K], w, offsets [E + 1] i32, b [B, N] or none, y of
// the block before or none)
//   -> y [R, N], workspace
// expert_linear_quantized_backward_input: (dy [R, N], w, offsets, dx of the block before or none)
//   -> dx [R, K], workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const kernels::QuantizedMatrix& experts_of(const Attrs& attrs) {
  return attrs.as<ExpertLinearQuantizedAttrs>().matrix;
}
std::int64_t first_of(const Attrs& attrs) { return attrs.as<ExpertLinearQuantizedAttrs>().first; }

/// `before`: the result of the block before, or null.
Specs infer_block(In in, const Attrs& attrs, const char* name, std::int64_t inner, std::int64_t columns,
                  const ValueInfo* before) {
  const kernels::QuantizedMatrix& matrix = experts_of(attrs);
  if (!is_matrix(in[0]) || in[0]->shape.dim(1) != inner || !has_type(in[1], {matrix.bytes()}, DType::u8) ||
      !detail::has_experts(in[2], matrix.count, first_of(attrs)) ||
      (before != nullptr && !has_type(before, {in[0]->shape.dim(0), columns}, in[0]->dtype)))
    return mismatch(str("[R, ", inner, "], ", matrix.count, " matrices of ", matrix.matrix_bytes(),
                        " bytes, offsets [E + 1] i32, the result of the block before or none"),
                    in);
  return std::vector<OutputSpec>{
      {name, {in[0]->shape.dim(0), columns}, in[0]->dtype},
      workspace(kernels::expert_linear_quantized_workspace_bytes(matrix, in[0]->dtype))};
}
double flops_block(In in, In, const Attrs& attrs) {
  const kernels::QuantizedMatrix& matrix = experts_of(attrs);
  return 2.0 * detail::rows_of_block(in[0], in[2], matrix.count) * static_cast<double>(matrix.matrix_elems());
}

Specs infer_expert_linear_quantized(In in, const Attrs& attrs) {
  const kernels::QuantizedMatrix& matrix = experts_of(attrs);
  if (in[3] != nullptr && !has_type(in[3], {matrix.count, matrix.rows()}, in[0]->dtype))
    return mismatch(str("biases [", matrix.count, ", ", matrix.rows(), "] of the dtype of x, or none"), in);
  return infer_block(in, attrs, "y", matrix.columns, matrix.rows(), in[4]);
}
void vjp_expert_linear_quantized(VjpContext& c) {
  STRATA_ASSERT(c.in(4) == kNoValue, "the derivative of a block of experts is not needed: split_experts()");
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(3))
    c.emit(Op::expert_linear_backward_bias, {dy, c.in(2), c.in(3)}, {3},
           ExpertBlockAttrs{first_of(c.attrs())});
  if (c.needs_input_grad(0))
    c.emit(Op::expert_linear_quantized_backward_input, {dy, c.in(1), c.in(2), kNoValue}, {0, -1}, c.attrs());
}
Status launch_expert_linear_quantized(const OpCall& c, Backend& backend, Stream& stream) {
  STRATA_TRY(detail::keep_other_rows(backend, stream, c.out[0], or_none(c.in[4])));
  return kernels::expert_linear_quantized_async(backend, stream,
                                                {.x = c.in[0],
                                                 .w = c.in[1],
                                                 .b = or_none(c.in[3]),
                                                 .offsets = c.in[2],
                                                 .y = c.out[0],
                                                 .first = first_of(c.attrs),
                                                 .workspace = as_workspace(c.out[1]),
                                                 .matrix = experts_of(c.attrs)});
}

Specs infer_expert_linear_quantized_backward_input(In in, const Attrs& attrs) {
  return infer_block(in, attrs, "dx", experts_of(attrs).rows(), experts_of(attrs).columns, in[3]);
}
Status launch_expert_linear_quantized_backward_input(const OpCall& c, Backend& backend, Stream& stream) {
  STRATA_TRY(detail::keep_other_rows(backend, stream, c.out[0], or_none(c.in[3])));
  return kernels::expert_linear_quantized_backward_input_async(backend, stream,
                                                               {.dy = c.in[0],
                                                                .w = c.in[1],
                                                                .offsets = c.in[2],
                                                                .dx = c.out[0],
                                                                .first = first_of(c.attrs),
                                                                .workspace = as_workspace(c.out[1]),
                                                                .matrix = experts_of(c.attrs)});
}

}  // namespace

constinit const OpDef detail::op_defs::expert_linear_quantized = {
    .kind = OpKind::expert_gemm,
    .n_in = 5,
    .optional_in = {3, 4},
    .infer_outputs = infer_expert_linear_quantized,
    .vjp = vjp_expert_linear_quantized,
    .in_place = {.out = 0, .in = 4},
    .flops = flops_block,
    .launch = launch_expert_linear_quantized,
};
constinit const OpDef detail::op_defs::expert_linear_quantized_backward_input = {
    .kind = OpKind::expert_gemm,
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_expert_linear_quantized_backward_input,
    .in_place = {.out = 0, .in = 3},
    .flops = flops_block,
    .launch = launch_expert_linear_quantized_backward_input,
};

}  // namespace strata

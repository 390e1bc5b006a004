#include <strata/kernels/linear.h>
#include <strata/kernels/linear_quantized.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// linear_quantized: (x [T, K], w [bytes of the matrix], b [N] or none) -> y [T, N], panel
// linear_quantized_backward_input: (dy [T, N], w) -> dx [T, K], panel
// The panel is a workspace. Both are GEMMs, whose last output is their workspace if they have one. The matrix
// is not trained.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const kernels::QuantizedMatrix& matrix_of(const Attrs& attrs) {
  return attrs.as<LinearQuantizedAttrs>().matrix;
}

Specs infer(In in, const Attrs& attrs, const char* name, std::int64_t inner, std::int64_t columns) {
  const kernels::QuantizedMatrix& matrix = matrix_of(attrs);
  if (!is_matrix(in[0]) || in[0]->shape.dim(1) != inner || !has_type(in[1], {matrix.bytes()}, DType::u8))
    return mismatch(str("[T, ", inner, "] and a matrix of ", matrix.bytes(), " bytes"), in);
  const GemmAttrs& gemm = attrs.as<LinearQuantizedAttrs>().gemm;
  const std::int64_t rows = in[0]->shape.dim(0);
  return with_gemm_workspace({{name, {rows, columns}, in[0]->dtype},
                              workspace(kernels::linear_quantized_workspace_bytes(matrix, in[0]->dtype))},
                             gemm, kernels::gemm_workspace_bytes(rows, columns));
}
double flops_quantized(In in, In, const Attrs& attrs) {
  return 2.0 * static_cast<double>(in[0]->shape.dim(0)) * static_cast<double>(matrix_of(attrs).n_elems());
}

Specs infer_linear_quantized(In in, const Attrs& attrs) {
  const kernels::QuantizedMatrix& matrix = matrix_of(attrs);
  if (in[2] != nullptr && !has_type(in[2], {matrix.rows()}, in[0]->dtype))
    return mismatch(str("bias [", matrix.rows(), "] of the dtype of x, or none"), in);
  return infer(in, attrs, "y", matrix.columns, matrix.rows());
}
void vjp_linear_quantized(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(2)) c.emit(Op::linear_backward_bias, {dy, c.in(2)}, {2, -1});
  if (c.needs_input_grad(0))
    c.emit(Op::linear_quantized_backward_input, {dy, c.in(1)}, {0, -1},
           LinearQuantizedAttrs{matrix_of(c.attrs())});
}
Status launch_linear_quantized(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_quantized_async(
      backend, stream,
      {c.in[0], c.in[1], or_none(c.in[2]), c.out[0], as_workspace(c.out[1]), workspace_or_none(c, 2),
       matrix_of(c.attrs)});
}

Specs infer_linear_quantized_backward_input(In in, const Attrs& attrs) {
  return infer(in, attrs, "dx", matrix_of(attrs).rows(), matrix_of(attrs).columns);
}
Status launch_linear_quantized_backward_input(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::linear_quantized_backward_input_async(
      backend, stream,
      {c.in[0], c.in[1], c.out[0], accumulates(c, 0), as_workspace(c.out[1]), workspace_or_none(c, 2),
       matrix_of(c.attrs)});
}

}  // namespace

constinit const OpDef detail::op_defs::linear_quantized = {
    .kind = OpKind::gemm,
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_linear_quantized,
    .vjp = vjp_linear_quantized,
    .flops = flops_quantized,
    .launch = launch_linear_quantized,
};
constinit const OpDef detail::op_defs::linear_quantized_backward_input = {
    .kind = OpKind::gemm,
    .n_in = 2,
    .infer_outputs = infer_linear_quantized_backward_input,
    .flops = flops_quantized,
    .launch = launch_linear_quantized_backward_input,
};

}  // namespace strata

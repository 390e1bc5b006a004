#include <strata/kernels/experts/expert_linear_quantized.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

#include "experts/quantized_experts.h"
#include "quant/dequantize_panel.h"

namespace strata::kernels {
STRATA_OP(expert_linear_quantized, ExpertLinearQuantizedArgs);
STRATA_OP(expert_linear_quantized_backward_input, ExpertLinearQuantizedBackwardInputArgs);

namespace {

/// Dequantizes the experts of a group that have rows; whether there is one.
bool dequantize_group(const QuantizedMatrix& matrix, const TensorView& offsets, std::int64_t first,
                      std::int64_t rows, const detail::ExpertGroup& group, ThreadPool& pool) {
  bool has_rows = false;
  const std::size_t of_expert = static_cast<std::size_t>(matrix.matrix_elems()) * size_of(group.panel.dtype);
  for (std::int64_t e = 0; e < group.count; ++e) {
    if (detail::rows_of_expert(offsets, first + group.first + e, rows).count() == 0) continue;
    has_rows = true;
    detail::dequantize_panel(matrix, group.bytes + e * matrix.matrix_bytes(),
                             {0, matrix.rows(), 0, matrix.columns}, group.panel.dtype,
                             group.panel.data + static_cast<std::size_t>(e) * of_expert, pool);
  }
  return has_rows;
}

/// Requires a quantized weight for `experts` experts from `first` on, and the workspace.
void check_quantized_experts(dispatch::Check& check, const QuantizedMatrix& matrix, const TensorView& w,
                             const TensorView& offsets, std::int64_t first, BufferView workspace,
                             DType dtype) {
  check.require(
      matrix.format != WeightFormat::full && matrix.columns > 0 && matrix.rows_of[0] > 0 && matrix.count > 0,
      "the matrices are not quantized, or empty");
  if (!check.status().is_ok()) return;
  const std::int64_t experts = offsets.n_elems() - 1;
  check.shape("w", w, DType::u8, {matrix.bytes()})
      .elements("offsets", offsets, DType::i32, offsets.n_elems())
      .require(first >= 0 && first + matrix.count <= experts, "w has the experts ", first, " to ",
               first + matrix.count, " of ", experts)
      .workspace(workspace, expert_linear_quantized_workspace_bytes(matrix, dtype));
}

}  // namespace

std::size_t expert_linear_quantized_workspace_bytes(const QuantizedMatrix& matrix, DType dtype) noexcept {
  return detail::group_bytes(matrix, dtype) +
         detail::tail_bytes(std::max(matrix.rows(), matrix.columns), dtype);
}

void expert_linear_quantized_host(const ExpertLinearQuantizedArgs& a, ThreadPool& pool) {
  (void)detail::for_each_group(a, a.x.dtype, [&](const detail::ExpertGroup& group, BufferView rest) {
    if (dequantize_group(a.matrix, a.offsets, a.first, dispatch::row_count(a.x), group, pool))
      expert_linear_forward_host(detail::forward_of_group(a, group, rest), pool);
    return Status::ok();
  });
}
void expert_linear_quantized_backward_input_host(const ExpertLinearQuantizedBackwardInputArgs& a,
                                                 ThreadPool& pool) {
  (void)detail::for_each_group(a, a.dy.dtype, [&](const detail::ExpertGroup& group, BufferView rest) {
    if (dequantize_group(a.matrix, a.offsets, a.first, dispatch::row_count(a.dy), group, pool))
      expert_linear_backward_input_host(detail::backward_of_group(a, group, rest), pool);
    return Status::ok();
  });
}

Status expert_linear_quantized_async(Backend& backend, Stream& stream, const ExpertLinearQuantizedArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  dispatch::Check check("expert_linear_quantized", "x", a.x);
  check_quantized_experts(check, a.matrix, a.w, a.offsets, a.first, a.workspace, a.x.dtype);
  check.rows("x", a.x, rows, a.matrix.columns).rows("y", a.y, rows, a.matrix.rows());
  if (dispatch::is_present(a.b)) check.shape("b", a.b, a.x.dtype, {a.matrix.count, a.matrix.rows()});
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_linear_quantized_op, a, {a.x, a.w, a.b, a.offsets}, {a.y},
                           a.workspace);
}

Status expert_linear_quantized_backward_input_async(Backend& backend, Stream& stream,
                                                    const ExpertLinearQuantizedBackwardInputArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  dispatch::Check check("expert_linear_quantized_backward_input", "dy", a.dy);
  check_quantized_experts(check, a.matrix, a.w, a.offsets, a.first, a.workspace, a.dy.dtype);
  check.rows("dy", a.dy, rows, a.matrix.rows()).rows("dx", a.dx, rows, a.matrix.columns);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_linear_quantized_backward_input_op, a,
                           {a.dy, a.w, a.offsets}, {a.dx}, a.workspace);
}

}  // namespace strata::kernels

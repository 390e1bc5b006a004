#include <strata/kernels/linear_quantized.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

#include "gemm/gemm_tiled.h"
#include "quant/dequantize_panel.h"
#include "quant/quantized_gemms.h"

namespace strata::kernels {
STRATA_OP(linear_quantized, LinearQuantizedArgs);
STRATA_OP(linear_quantized_backward_input, LinearQuantizedBackwardInputArgs);

namespace {

/// The function that runs for each panel: it dequantizes the panel into a.panel, then multiplies.
template <class Args>
auto on_host(const Args& a, DType dtype, ThreadPool& pool) {
  return [&a, dtype, &pool](const detail::Panel& panel, const detail::Gemm& gemm, const void* bias) {
    detail::dequantize_panel(a.matrix, a.w.data, panel, dtype, a.panel.data, pool);
    detail::gemm_tiled(gemm, bias, pool);
    return Status::ok();
  };
}

void check_matrix(dispatch::Check& check, const QuantizedMatrix& matrix, const TensorView& w,
                  BufferView panel, DType dtype) {
  check.require(matrix.format != WeightFormat::full && matrix.columns > 0 && matrix.rows_of[0] > 0,
                "the matrix is not quantized, or empty");
  check.require(matrix.count == 1, "w has ", matrix.count, " matrices; it must have 1");
  if (!check.status().is_ok()) return;
  check.shape("w", w, DType::u8, {matrix.bytes()})
      .workspace(panel, linear_quantized_workspace_bytes(matrix, dtype));
}

}  // namespace

std::size_t linear_quantized_workspace_bytes(const QuantizedMatrix& matrix, DType dtype) noexcept {
  const std::int64_t n = matrix.rows(), k = matrix.columns;
  const std::int64_t elems = std::max(detail::panel_extent(n, k) * k, detail::panel_extent(k, n) * n);
  return static_cast<std::size_t>(elems) * size_of(dtype);
}

void linear_quantized_host(const LinearQuantizedArgs& a, ThreadPool& pool) {
  (void)detail::for_each_panel_of_rows(a, on_host(a, a.x.dtype, pool));
}
void linear_quantized_backward_input_host(const LinearQuantizedBackwardInputArgs& a, ThreadPool& pool) {
  (void)detail::for_each_panel_of_columns(a, on_host(a, a.dy.dtype, pool));
}

Status linear_quantized_async(Backend& backend, Stream& stream, const LinearQuantizedArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  dispatch::Check check("linear_quantized", "x", a.x);
  check_matrix(check, a.matrix, a.w, a.panel, a.x.dtype);
  check.rows("x", a.x, rows, a.matrix.columns).rows("y", a.y, rows, a.matrix.rows());
  if (dispatch::is_present(a.b)) check.shape("b", a.b, a.x.dtype, {a.matrix.rows()});
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, linear_quantized_op, a, {a.x, a.w, a.b}, {a.y}, a.panel);
}

Status linear_quantized_backward_input_async(Backend& backend, Stream& stream,
                                             const LinearQuantizedBackwardInputArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  dispatch::Check check("linear_quantized_backward_input", "dy", a.dy);
  check_matrix(check, a.matrix, a.w, a.panel, a.dy.dtype);
  check.rows("dy", a.dy, rows, a.matrix.rows()).rows("dx", a.dx, rows, a.matrix.columns);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, linear_quantized_backward_input_op, a, {a.dy, a.w}, {a.dx},
                           a.panel);
}

}  // namespace strata::kernels

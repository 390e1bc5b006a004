#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_view.h>

#include "gemm/gemm.h"
#include "quant/dequantize_panel.h"

/// The panels of a quantized matrix and the GEMM of each, used by the host and by CUDA.
namespace strata::kernels::detail {

inline constexpr std::int64_t kPanelElems = std::int64_t{16} << 20;
/// Panels end at multiples of it, where tiles of the result and blocks do.
inline constexpr std::int64_t kPanelMultiple = 512;

/// Rows, or columns, of a panel of a matrix with `n` of them, each of `length` values.
constexpr std::int64_t panel_extent(std::int64_t n, std::int64_t length) noexcept {
  const std::int64_t fit = kPanelElems / length / kPanelMultiple * kPanelMultiple;
  return std::min(n, std::max(fit, kPanelMultiple));
}

inline void* element(const TensorView& view, std::int64_t index) noexcept {
  return view.data + index * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Calls `run(panel, gemm, bias)` for each panel of y = x W^T + b, in order, until one returns an error; the
/// panel's values are to be at a.panel then. `Args` is LinearQuantizedArgs.
template <class Args, class Run>
Status for_each_panel_of_rows(const Args& a, const Run& run) {
  const std::int64_t n = a.matrix.rows(), k = a.matrix.columns, step = panel_extent(n, k);
  for (std::int64_t row = 0; row < n; row += step) {
    const Panel panel = {row, std::min(step, n - row), 0, k};
    const Gemm gemm = {.trans_b = true,
                       .m = dispatch::row_count(a.x),
                       .n = panel.rows,
                       .k = k,
                       .a = a.x.data,
                       .lda = k,
                       .b = a.panel.data,
                       .ldb = k,
                       .c = element(a.y, row),
                       .ldc = n,
                       .dtype = a.x.dtype,
                       .c_dtype = a.y.dtype};
    STRATA_TRY(run(panel, gemm, dispatch::is_present(a.b) ? element(a.b, row) : nullptr));
  }
  return {};
}
/// The same for dx (+)= dy W, whose `Args` is LinearQuantizedBackwardInputArgs.
template <class Args, class Run>
Status for_each_panel_of_columns(const Args& a, const Run& run) {
  const std::int64_t n = a.matrix.rows(), k = a.matrix.columns, step = panel_extent(k, n);
  for (std::int64_t column = 0; column < k; column += step) {
    const Panel panel = {0, n, column, std::min(step, k - column)};
    const Gemm gemm = {.m = dispatch::row_count(a.dy),
                       .n = panel.columns,
                       .k = n,
                       .a = a.dy.data,
                       .lda = n,
                       .b = a.panel.data,
                       .ldb = panel.columns,
                       .c = element(a.dx, column),
                       .ldc = k,
                       .accumulate = a.accumulate,
                       .dtype = a.dy.dtype,
                       .c_dtype = a.dx.dtype};
    STRATA_TRY(run(panel, gemm, nullptr));
  }
  return {};
}

}  // namespace strata::kernels::detail

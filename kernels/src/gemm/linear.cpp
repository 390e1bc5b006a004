#include <strata/kernels/linear.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_tiled.h"
#include "gemm/tensor_gemm.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(linear_forward, LinearForwardArgs);
STRATA_OP(linear_backward_input, LinearBackwardInputArgs);
STRATA_OP(linear_backward_weight, LinearBackwardWeightArgs);
STRATA_OP(linear_backward_bias, LinearBackwardBiasArgs);

bool host_rows_are_exact() noexcept { return detail::sums_by_chains(); }

void linear_forward_host(const LinearForwardArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::gemm_of_rows(a.x, a.w, a.y), dispatch::is_present(a.b) ? a.b.data : nullptr,
                     pool);
}

void linear_backward_input_host(const LinearBackwardInputArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::gemm_of_matrices(a.dy, a.w, a.dx, a.accumulate), nullptr, pool);
}

void linear_backward_weight_host(const LinearBackwardWeightArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::gemm_of_columns(a.dy, a.x, a.dw, a.accumulate), nullptr, pool);
}

template <class T>
static void backward_bias(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  const std::int64_t n = dispatch::row_length(a.dy);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const std::int64_t blocks = detail::sum_row_blocks(
      rows, n, partials, pool,
      [&](std::int64_t t, float* sum) { table.accumulate_row(sum, a.dy.as<T>() + t * n, n); });
  detail::sum_partials(partials, blocks, n, a.db, a.accumulate, pool);
}

void linear_backward_bias_host(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) { backward_bias<T>(a, pool); });
}

// Space for eight partial results occupies a GPU whose result alone has too few tiles; a larger result needs
// no partial results. 32 MiB is the workspace that cuBLAS uses on the largest GPUs.
std::size_t gemm_workspace_bytes(std::int64_t m, std::int64_t n) noexcept {
  constexpr std::size_t kPartials = 8, kMaxBytes = std::size_t{32} << 20;
  return std::min(static_cast<std::size_t>(m * n) * sizeof(float) * kPartials, kMaxBytes);
}

Status linear_forward_async(Backend& backend, Stream& stream, const LinearForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  const std::int64_t k = dispatch::row_length(a.x);
  const std::int64_t n = a.w.shape.dims[0];
  dispatch::Check check("linear_forward", "x", a.x);
  check.rows("x", a.x, rows, k).shape("w", a.w, a.x.dtype, {n, k});
  check.rows("y", a.y, a.y.dtype == DType::f32 ? DType::f32 : a.x.dtype, rows, n);
  if (dispatch::is_present(a.b)) check.shape("b", a.b, a.x.dtype, {n});
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, linear_forward_op, a, {a.x, a.w, a.b}, {a.y});
}

Status linear_backward_input_async(Backend& backend, Stream& stream, const LinearBackwardInputArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  const std::int64_t n = dispatch::row_length(a.dy);
  const std::int64_t k = dispatch::row_length(a.w);
  STRATA_TRY(dispatch::Check("linear_backward_input", "dy", a.dy)
                 .rows("dy", a.dy, rows, n)
                 .shape("w", a.w, a.dy.dtype, {n, k})
                 .rows("dx", a.dx, rows, k)
                 .status());
  return dispatch::enqueue(backend, stream, linear_backward_input_op, a, {a.dy, a.w}, {a.dx});
}

Status linear_backward_weight_async(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  const std::int64_t n = dispatch::row_length(a.dy);
  const std::int64_t k = dispatch::row_length(a.x);
  STRATA_TRY(dispatch::Check("linear_backward_weight", "dy", a.dy)
                 .rows("dy", a.dy, rows, n)
                 .rows("x", a.x, rows, k)
                 .gradient("dw", a.dw, {n, k}, a.accumulate)
                 .status());
  return dispatch::enqueue(backend, stream, linear_backward_weight_op, a, {a.dy, a.x}, {a.dw});
}

std::size_t linear_backward_bias_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept {
  return detail::row_sums_bytes(rows, columns);
}

Status linear_backward_bias_async(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  const std::int64_t n = dispatch::row_length(a.dy);
  STRATA_TRY(dispatch::Check("linear_backward_bias", "dy", a.dy)
                 .rows("dy", a.dy, rows, n)
                 .gradient("db", a.db, {n}, a.accumulate)
                 .workspace(a.workspace, linear_backward_bias_workspace_bytes(rows, n))
                 .status());
  return dispatch::enqueue(backend, stream, linear_backward_bias_op, a, {a.dy}, {a.db}, a.workspace);
}

}  // namespace strata::kernels

#include <strata/kernels/linear.h>

#include <algorithm>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/gemm/launches.h"
#include "work_split.h"

namespace strata::kernels {

// Space for eight partial results occupies a GPU whose result alone has too few tiles; a larger result needs
// no partial results. 32 MiB is the workspace that cuBLAS uses on the largest GPUs.
std::size_t gemm_workspace_bytes(std::int64_t m, std::int64_t n) noexcept {
  constexpr std::size_t kPartials = 8, kMaxBytes = std::size_t{32} << 20;
  return std::min(static_cast<std::size_t>(m * n) * sizeof(float) * kPartials, kMaxBytes);
}

Status linear_forward_async(Backend& backend, Stream& stream, const LinearForwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.x);
  const std::int64_t k = ops::row_length(a.x);
  const std::int64_t n = a.w.shape.dims[0];
  ops::Check check("linear_forward", "x", a.x);
  check.rows("x", a.x, rows, k).shape("w", a.w, a.x.dtype, {n, k});
  check.rows("y", a.y, a.y.dtype == DType::f32 ? DType::f32 : a.x.dtype, rows, n);
  if (ops::is_present(a.b)) check.shape("b", a.b, a.x.dtype, {n});
  STRATA_TRY(check.status());
  constexpr ops::OpImpl<LinearForwardArgs> op = {"linear_forward", &linear_forward_host,
                                                 &cuda::linear_forward};
  return ops::enqueue(backend, stream, op, a, {a.x, a.w, a.b}, {a.y});
}

Status linear_backward_input_async(Backend& backend, Stream& stream, const LinearBackwardInputArgs& a) {
  const std::int64_t rows = ops::row_count(a.dy);
  const std::int64_t n = ops::row_length(a.dy);
  const std::int64_t k = ops::row_length(a.w);
  STRATA_TRY(ops::Check("linear_backward_input", "dy", a.dy)
                 .rows("dy", a.dy, rows, n)
                 .shape("w", a.w, a.dy.dtype, {n, k})
                 .rows("dx", a.dx, rows, k)
                 .status());
  constexpr ops::OpImpl<LinearBackwardInputArgs> op = {"linear_backward_input", &linear_backward_input_host,
                                                       &cuda::linear_backward_input};
  return ops::enqueue(backend, stream, op, a, {a.dy, a.w}, {a.dx});
}

Status linear_backward_weight_async(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& a) {
  const std::int64_t rows = ops::row_count(a.dy);
  const std::int64_t n = ops::row_length(a.dy);
  const std::int64_t k = ops::row_length(a.x);
  STRATA_TRY(ops::Check("linear_backward_weight", "dy", a.dy)
                 .rows("dy", a.dy, rows, n)
                 .rows("x", a.x, rows, k)
                 .gradient("dw", a.dw, {n, k}, a.accumulate)
                 .status());
  constexpr ops::OpImpl<LinearBackwardWeightArgs> op = {
      "linear_backward_weight", &linear_backward_weight_host, &cuda::linear_backward_weight};
  return ops::enqueue(backend, stream, op, a, {a.dy, a.x}, {a.dw});
}

std::size_t linear_backward_bias_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept {
  return detail::row_sums_bytes(rows, columns);
}

Status linear_backward_bias_async(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& a) {
  const std::int64_t rows = ops::row_count(a.dy);
  const std::int64_t n = ops::row_length(a.dy);
  STRATA_TRY(ops::Check("linear_backward_bias", "dy", a.dy)
                 .rows("dy", a.dy, rows, n)
                 .gradient("db", a.db, {n}, a.accumulate)
                 .workspace(a.workspace, linear_backward_bias_workspace_bytes(rows, n))
                 .status());
  constexpr ops::OpImpl<LinearBackwardBiasArgs> op = {"linear_backward_bias", &linear_backward_bias_host,
                                                      &cuda::linear_backward_bias};
  return ops::enqueue(backend, stream, op, a, {a.dy}, {a.db}, a.workspace);
}

}  // namespace strata::kernels

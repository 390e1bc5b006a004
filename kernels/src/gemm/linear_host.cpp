#include <strata/kernels/linear.h>
#include <strata/ops/rows.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_tiled.h"
#include "gemm/tensor_gemm.h"
#include "partial_sums.h"
#include "simd_table.h"

namespace strata::kernels {

void linear_forward_host(const LinearForwardArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::gemm_of_rows(a.x, a.w, a.y), ops::is_present(a.b) ? a.b.data : nullptr, pool);
}

void linear_backward_input_host(const LinearBackwardInputArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::gemm_of_matrices(a.dy, a.w, a.dx, a.accumulate), nullptr, pool);
}

void linear_backward_weight_host(const LinearBackwardWeightArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::gemm_of_columns(a.dy, a.x, a.dw, a.accumulate), nullptr, pool);
}

template <class T>
static void backward_bias(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  const std::int64_t rows = ops::row_count(a.dy);
  const std::int64_t n = ops::row_length(a.dy);
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

}  // namespace strata::kernels

#include <algorithm>

#include <strata/kernels/linear.h>

#include "gemm/linear_gemm.h"
#include "op.h"
#include "partial_sums.h"
#include "simd_table.h"

namespace strata::kernels {

void linear_forward_host(const LinearForwardArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::forward_gemm(a), detail::is_present(a.b) ? a.b.data : nullptr, pool);
}

void linear_backward_input_host(const LinearBackwardInputArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::input_gemm(a), nullptr, pool);
}

void linear_backward_weight_host(const LinearBackwardWeightArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::weight_gemm(a), nullptr, pool);
}

template <class T>
static void backward_bias(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  const std::int64_t rows = detail::row_count(a.dy);
  const std::int64_t n = detail::row_length(a.dy);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* sum = partials + block * n;
    std::fill_n(sum, n, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t)
      table.accumulate_row(sum, a.dy.as<T>() + t * n, n);
  });
  detail::sum_partials(partials, blocks.count, n, a.db, a.accumulate, pool);
}

void linear_backward_bias_host(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) { backward_bias<T>(a, pool); });
}

}  // namespace strata::kernels

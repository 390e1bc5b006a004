#include <algorithm>

#include <strata/kernels/linear.h>

#include "linear_products.h"
#include "op.h"
#include "partial_sums.h"
#include "stored_table.h"

namespace strata::kernels {

void linear_forward_host(const LinearForwardArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::forward_product(a), detail::is_given(a.b) ? a.b.data : nullptr, pool);
}

void linear_backward_input_host(const LinearBackwardInputArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::input_product(a), nullptr, pool);
}

void linear_backward_weight_host(const LinearBackwardWeightArgs& a, ThreadPool& pool) {
  detail::gemm_tiled(detail::weight_product(a), nullptr, pool);
}

template <class T>
static void backward_bias(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  const std::int64_t rows = detail::row_count(a.dy);
  const std::int64_t n = detail::row_length(a.dy);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::StoredTable<T>& table = detail::row_table<T>();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* sum = partials + block * n;
    std::fill_n(sum, n, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t) table.sum_to(sum, a.dy.as<T>() + t * n, n);
  });
  detail::sum_partials(partials, blocks.count, n, a.db, a.accumulate, pool);
}

void linear_backward_bias_host(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  detail::with_storage(a.dy.dtype, [&]<class T>(std::type_identity<T>) { backward_bias<T>(a, pool); });
}

}  // namespace strata::kernels

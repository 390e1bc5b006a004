#include <algorithm>

#include <strata/kernels/linear.h>

#include "gemm.h"
#include "op.h"
#include "partial_sums.h"

namespace strata::kernels {

using detail::Gemm;

void linear_forward_host(const LinearForwardArgs& a, ThreadPool& pool) {
  const std::int64_t n = a.w.shape.dim(0);
  const std::int64_t k = a.w.shape.dim(1);
  const Gemm gemm = {.trans_b = true,
                     .m = detail::row_count(a.x),
                     .n = n,
                     .k = k,
                     .a = a.x.as<float>(),
                     .lda = k,
                     .b = a.w.as<float>(),
                     .ldb = k,
                     .c = a.y.as<float>(),
                     .ldc = n};
  detail::gemm_tiled(gemm, detail::is_given(a.b) ? a.b.as<float>() : nullptr, pool);
}

void linear_backward_input_host(const LinearBackwardInputArgs& a, ThreadPool& pool) {
  const std::int64_t n = a.w.shape.dim(0);
  const std::int64_t k = a.w.shape.dim(1);
  const Gemm gemm = {.m = detail::row_count(a.dy),
                     .n = k,
                     .k = n,
                     .a = a.dy.as<float>(),
                     .lda = n,
                     .b = a.w.as<float>(),
                     .ldb = k,
                     .c = a.dx.as<float>(),
                     .ldc = k,
                     .accumulate = a.accumulate};
  detail::gemm_tiled(gemm, nullptr, pool);
}

void linear_backward_weight_host(const LinearBackwardWeightArgs& a, ThreadPool& pool) {
  const std::int64_t n = a.dw.shape.dim(0);
  const std::int64_t k = a.dw.shape.dim(1);
  const Gemm gemm = {.trans_a = true,
                     .m = n,
                     .n = k,
                     .k = detail::row_count(a.dy),
                     .a = a.dy.as<float>(),
                     .lda = n,
                     .b = a.x.as<float>(),
                     .ldb = k,
                     .c = a.dw.as<float>(),
                     .ldc = k,
                     .accumulate = a.accumulate};
  detail::gemm_tiled(gemm, nullptr, pool);
}

void linear_backward_bias_host(const LinearBackwardBiasArgs& a, ThreadPool& pool) {
  const std::int64_t rows = detail::row_count(a.dy);
  const std::int64_t n = detail::row_length(a.dy);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::RowTable& table = detail::row_table();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* sum = partials + block * n;
    std::fill_n(sum, n, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t) table.add_to(sum, a.dy.as<float>() + t * n, n);
  });
  detail::sum_partials(partials, blocks.count, n, n, a.db.as<float>(), a.accumulate, pool);
}

}  // namespace strata::kernels

#include <algorithm>

#include <strata/kernels/linear.h>

#include "gemm.h"
#include "op.h"
#include "partial_sums.h"
#include "stored_table.h"

namespace strata::kernels {

using detail::Gemm;

void linear_forward_host(const LinearForwardArgs& a, ThreadPool& pool) {
  const std::int64_t n = a.w.shape.dim(0);
  const std::int64_t k = a.w.shape.dim(1);
  const Gemm gemm = {.trans_b = true,
                     .m = detail::row_count(a.x),
                     .n = n,
                     .k = k,
                     .a = a.x.data,
                     .lda = k,
                     .b = a.w.data,
                     .ldb = k,
                     .c = a.y.data,
                     .ldc = n,
                     .dtype = a.x.dtype,
                     .c_dtype = a.y.dtype};
  detail::gemm_tiled(gemm, detail::is_given(a.b) ? a.b.data : nullptr, pool);
}

void linear_backward_input_host(const LinearBackwardInputArgs& a, ThreadPool& pool) {
  const std::int64_t n = a.w.shape.dim(0);
  const std::int64_t k = a.w.shape.dim(1);
  const Gemm gemm = {.m = detail::row_count(a.dy),
                     .n = k,
                     .k = n,
                     .a = a.dy.data,
                     .lda = n,
                     .b = a.w.data,
                     .ldb = k,
                     .c = a.dx.data,
                     .ldc = k,
                     .accumulate = a.accumulate,
                     .dtype = a.dy.dtype,
                     .c_dtype = a.dx.dtype};
  detail::gemm_tiled(gemm, nullptr, pool);
}

void linear_backward_weight_host(const LinearBackwardWeightArgs& a, ThreadPool& pool) {
  const std::int64_t n = a.dw.shape.dim(0);
  const std::int64_t k = a.dw.shape.dim(1);
  const Gemm gemm = {.trans_a = true,
                     .m = n,
                     .n = k,
                     .k = detail::row_count(a.dy),
                     .a = a.dy.data,
                     .lda = n,
                     .b = a.x.data,
                     .ldb = k,
                     .c = a.dw.data,
                     .ldc = k,
                     .accumulate = a.accumulate,
                     .dtype = a.dy.dtype,
                     .c_dtype = a.dw.dtype};
  detail::gemm_tiled(gemm, nullptr, pool);
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

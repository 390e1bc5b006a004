#include <algorithm>

#include <strata/kernels/layernorm.h>

#include "norm/norm_rows.h"
#include "op.h"
#include "partial_sums.h"
#include "simd_table.h"

namespace strata::kernels {
namespace {

template <class T>
void layernorm_forward(const LayernormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = detail::row_length(a.x);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  detail::parallel_for_ranges(
      pool, detail::row_count(a.x), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          table.layernorm_forward(detail::normed_row<T>(table, a, t), a.weight.as<T>(), a.bias.as<T>(),
                                  a.y.as<T>() + t * h, a.mean.as<float>() + t, a.rstd.as<float>() + t, a.eps,
                                  h);
      });
}

template <class T>
void layernorm_backward(const LayernormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = detail::row_length(a.x);
  const std::int64_t rows = detail::row_count(a.x);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);  // for each block: dweight, dbias
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* dweight = partials + block * 2 * h;
    float* dbias = dweight + h;
    std::fill_n(dweight, 2 * h, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t)
      table.layernorm_backward(a.x.as<T>() + t * h, a.weight.as<T>(), a.mean.as<float>()[t],
                               a.rstd.as<float>()[t], a.dy.as<T>() + t * h, a.dx.as<T>() + t * h,
                               detail::row_or_null<T>(a.residual, t), dweight, dbias, h);
  });
  detail::sum_partials(partials, blocks.count, 2 * h, a.dweight, a.accumulate_dweight, pool);
  detail::sum_partials(partials + h, blocks.count, 2 * h, a.dbias, a.accumulate_dbias, pool);
}

}  // namespace

void layernorm_forward_host(const LayernormForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { layernorm_forward<T>(a, pool); });
}
void layernorm_backward_host(const LayernormBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { layernorm_backward<T>(a, pool); });
}

}  // namespace strata::kernels

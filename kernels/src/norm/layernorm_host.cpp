#include <strata/kernels/layernorm.h>
#include <strata/ops/ranges.h>
#include <strata/ops/rows.h>

#include "dtype_dispatch.h"
#include "norm/norm_rows.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

template <class T>
void layernorm_forward(const LayernormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = ops::row_length(a.x);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  ops::parallel_for_ranges(
      pool, ops::row_count(a.x), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          table.layernorm_forward(detail::normed_row<T>(table, a, t), a.weight.as<T>(), a.bias.as<T>(),
                                  a.y.as<T>() + t * h, a.mean.as<float>() + t, a.rstd.as<float>() + t, a.eps,
                                  h);
      });
}

template <class T>
void layernorm_backward(const LayernormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = ops::row_length(a.x);
  const std::int64_t rows = ops::row_count(a.x);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);  // for each block: dweight, dbias
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const std::int64_t blocks =
      detail::sum_row_blocks(rows, 2 * h, partials, pool, [&](std::int64_t t, float* dweight) {
        table.layernorm_backward(a.x.as<T>() + t * h, a.weight.as<T>(), a.mean.as<float>()[t],
                                 a.rstd.as<float>()[t], a.dy.as<T>() + t * h, a.dx.as<T>() + t * h,
                                 detail::row_or_null<T>(a.residual, t), dweight, dweight + h, h);
      });
  detail::sum_partials(partials, blocks, 2 * h, a.dweight, a.accumulate_dweight, pool);
  detail::sum_partials(partials + h, blocks, 2 * h, a.dbias, a.accumulate_dbias, pool);
}

}  // namespace

void layernorm_forward_host(const LayernormForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { layernorm_forward<T>(a, pool); });
}
void layernorm_backward_host(const LayernormBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { layernorm_backward<T>(a, pool); });
}

}  // namespace strata::kernels

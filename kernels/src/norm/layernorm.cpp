#include <strata/kernels/layernorm.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "norm/norm_checks.h"
#include "norm/norm_rows.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

template <class T>
void layernorm_forward(const LayernormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.x);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.x), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          table.layernorm_forward(detail::normed_row<T>(table, a, t), a.weight.as<T>(), a.bias.as<T>(),
                                  a.y.as<T>() + t * h, a.mean.as<float>() + t, a.rstd.as<float>() + t, a.eps,
                                  h);
      });
}

template <class T>
void layernorm_backward(const LayernormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.x);
  const std::int64_t rows = dispatch::row_count(a.x);
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

STRATA_OP(layernorm_forward, LayernormForwardArgs);
STRATA_OP(layernorm_backward, LayernormBackwardArgs);

void layernorm_forward_host(const LayernormForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { layernorm_forward<T>(a, pool); });
}
void layernorm_backward_host(const LayernormBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { layernorm_backward<T>(a, pool); });
}

Status layernorm_forward_async(Backend& backend, Stream& stream, const LayernormForwardArgs& a) {
  STRATA_TRY(detail::check_norm_forward("layernorm_forward", a).status());
  return dispatch::enqueue(backend, stream, layernorm_forward_op, a, {a.x, a.weight, a.bias, a.added},
                           {a.y, a.mean, a.rstd, a.sum});
}

std::size_t layernorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept {
  return detail::row_sums_bytes(rows, 2 * hidden);
}

Status layernorm_backward_async(Backend& backend, Stream& stream, const LayernormBackwardArgs& a) {
  const std::size_t bytes =
      layernorm_backward_workspace_bytes(dispatch::row_count(a.x), dispatch::row_length(a.x));
  STRATA_TRY(detail::check_norm_backward("layernorm_backward", a, bytes).status());
  return dispatch::enqueue(backend, stream, layernorm_backward_op, a,
                           {a.x, a.weight, a.mean, a.rstd, a.dy, a.residual}, {a.dx, a.dweight, a.dbias},
                           a.workspace);
}

}  // namespace strata::kernels

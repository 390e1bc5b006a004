#include <strata/kernels/align/row_scores.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

template <class T>
void scores(const RowScoresArgs& a, ThreadPool& pool) {
  const std::int64_t k = dispatch::row_length(a.x);
  const float bias = dispatch::is_present(a.bias) ? to_f32(*a.bias.as<T>()) : 0.0f;
  const auto dot = detail::simd_table<T>().dot;
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.x), detail::rows_per_item(k), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          a.scores.as<float>()[t] = dot(a.x.as<T>() + t * k, a.weight.as<T>(), k) + bias;
      });
}

// The partial sums of a block of rows: those of dweight, then that of dbias.
template <class T>
void scores_backward(const RowScoresBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t k = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const auto add_row = [&](std::int64_t t, float* sums) {
    const float d = a.dscores.as<float>()[t];
    table.scale(a.weight.as<T>(), a.dx.as<T>() + t * k, d, k);
    table.accumulate_scaled(sums, a.x.as<T>() + t * k, d, k);
    sums[k] = sums[k] + d;
  };
  const std::int64_t blocks = detail::sum_row_blocks(rows, k + 1, partials, pool, add_row);
  detail::sum_partials(partials, blocks, k + 1, a.dweight, a.accumulate_dweight, pool);
  if (dispatch::is_present(a.dbias))
    detail::sum_partials(partials + k, blocks, k + 1, a.dbias, a.accumulate_dbias, pool);
}

}  // namespace

STRATA_OP(row_scores, RowScoresArgs);
STRATA_OP(row_scores_backward, RowScoresBackwardArgs);

void row_scores_host(const RowScoresArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { scores<T>(a, pool); });
}
void row_scores_backward_host(const RowScoresBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { scores_backward<T>(a, pool); });
}

Status row_scores_async(Backend& backend, Stream& stream, const RowScoresArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x);
  dispatch::Check check("row_scores", "x", a.x);
  check.rows("x", a.x, rows, k).shape("weight", a.weight, a.x.dtype, {1, k});
  if (dispatch::is_present(a.bias)) check.shape("bias", a.bias, a.x.dtype, {1});
  STRATA_TRY(check.elements("scores", a.scores, DType::f32, rows).status());
  return dispatch::enqueue(backend, stream, row_scores_op, a, {a.x, a.weight, a.bias}, {a.scores});
}

std::size_t row_scores_backward_workspace_bytes(std::int64_t rows, std::int64_t k) noexcept {
  return detail::row_sums_bytes(rows, k + 1);
}

Status row_scores_backward_async(Backend& backend, Stream& stream, const RowScoresBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x);
  dispatch::Check check("row_scores_backward", "x", a.x);
  check.rows("x", a.x, rows, k)
      .shape("weight", a.weight, a.x.dtype, {1, k})
      .elements("dscores", a.dscores, DType::f32, rows)
      .rows("dx", a.dx, rows, k)
      .gradient("dweight", a.dweight, {1, k}, a.accumulate_dweight)
      .workspace(a.workspace, row_scores_backward_workspace_bytes(rows, k));
  if (dispatch::is_present(a.dbias)) check.gradient("dbias", a.dbias, {1}, a.accumulate_dbias);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, row_scores_backward_op, a, {a.x, a.weight, a.dscores},
                           {a.dx, a.dweight, a.dbias}, a.workspace);
}

}  // namespace strata::kernels

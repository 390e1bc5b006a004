#include <algorithm>
#include <cstdint>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/dora.h>

#include "dtype_dispatch.h"
#include "elementwise/part_columns.h"
#include "adapters/lora_parts_check.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(scale_columns, ScaleColumnsArgs);
STRATA_OP(scale_columns_backward_weight, ScaleColumnsBackwardWeightArgs);

namespace {

// The columns of one row between those of parts.
template <class T>
void pass_columns(const detail::SimdTable<T>& table, const T* x, const T* bias, T* y, std::int64_t first,
                  std::int64_t end) {
  if (bias != nullptr)
    table.add(x + first, bias + first, y + first, end - first);
  else if (x != y)
    std::copy(x + first, x + end, y + first);
}

template <class T>
void scale_row(const detail::SimdTable<T>& table, const ScaleColumnsArgs& a, std::int64_t t) {
  const std::int64_t n = dispatch::row_length(a.x);
  const T* const x = a.x.as<T>() + t * n;
  const T* const bias = dispatch::is_present(a.bias) ? a.bias.as<T>() : nullptr;
  T* const y = a.y.as<T>() + t * n;
  std::int64_t column = 0, row = 0;
  for (const LoraPart& part : a.parts.all()) {
    pass_columns(table, x, bias, y, column, part.first_row);
    column = part.first_row;
    table.scale_columns(x + column, a.m.as<float>() + row, a.norm.as<float>() + row,
                        bias == nullptr ? nullptr : bias + column, y + column, part.rows);
    column += part.rows;
    row += part.rows;
  }
  pass_columns(table, x, bias, y, column, n);
}

template <class T>
void sum_products(const ScaleColumnsBackwardWeightArgs& a, ThreadPool& pool) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy),
                     columns = a.dm.n_elems();
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const std::int64_t blocks =
      detail::sum_row_blocks(rows, columns, partials, pool, [&](std::int64_t t, float* sum) {
        for (const LoraPart& part : a.parts.all()) {
          table.accumulate_product(sum, a.dy.as<T>() + t * n + part.first_row,
                                   a.x.as<T>() + t * n + part.first_row, part.rows);
          sum += part.rows;
        }
      });
  const float* const norm = a.norm.as<float>();
  pool.parallel_for(blocks, [&](std::int64_t block) {
    float* const sum = partials + block * columns;
    for (std::int64_t i = 0; i < columns; ++i) sum[i] = detail::over_norm(sum[i], norm[i]);
  });
  detail::sum_partials(partials, blocks, columns, a.dm, a.accumulate, pool);
}

}  // namespace

void scale_columns_host(const ScaleColumnsArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.x);
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const detail::SimdTable<T>& table = detail::simd_table<T>();
    dispatch::parallel_for_ranges(pool, dispatch::row_count(a.x), detail::rows_per_item(n),
                                  [&](std::int64_t first, std::int64_t count) {
                                    for (std::int64_t t = first; t < first + count; ++t)
                                      scale_row(table, a, t);
                                  });
  });
}
void scale_columns_backward_weight_host(const ScaleColumnsBackwardWeightArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) { sum_products<T>(a, pool); });
}

std::size_t scale_columns_backward_workspace_bytes(std::int64_t rows, std::int64_t columns) noexcept {
  return detail::row_sums_bytes(rows, columns);
}

Status scale_columns_async(Backend& backend, Stream& stream, const ScaleColumnsArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), n = dispatch::row_length(a.x);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("scale_columns", "x", a.x);
  detail::check_parts(check, a.parts, n);
  check.rows("x", a.x, rows, n)
      .shape("m", a.m, DType::f32, {sums.rows})
      .shape("norm", a.norm, DType::f32, {sums.rows})
      .rows("y", a.y, rows, n);
  if (dispatch::is_present(a.bias)) check.shape("bias", a.bias, a.x.dtype, {n});
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, scale_columns_op, a, {a.x, a.m, a.norm, a.bias}, {a.y});
}

Status scale_columns_backward_weight_async(Backend& backend, Stream& stream,
                                           const ScaleColumnsBackwardWeightArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("scale_columns_backward_weight", "dy", a.dy);
  detail::check_parts(check, a.parts, n);
  check.rows("dy", a.dy, rows, n)
      .rows("x", a.x, rows, n)
      .shape("norm", a.norm, DType::f32, {sums.rows})
      .shape("dm", a.dm, DType::f32, {sums.rows})
      .workspace(a.workspace, scale_columns_backward_workspace_bytes(rows, sums.rows));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, scale_columns_backward_weight_op, a, {a.dy, a.x, a.norm}, {a.dm},
                           a.workspace);
}

}  // namespace strata::kernels

#include <strata/kernels/virtual_rows.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/assert.h>

#include "dtype_dispatch.h"
#include "embedding/virtual_rows_math.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

using dispatch::is_present;
using dispatch::row_count;
using dispatch::row_length;

constexpr std::int64_t kSummedColumns = 512;  // columns of a row that are summed at a time, on the stack

/// Writes the virtual row `from` (null: zeros) to the row `to` of `h` values.
template <class T>
void put_virtual_row(const T* from, std::int64_t columns, T* to, std::int64_t h) {
  std::fill_n(to, h - columns, T{});
  if (from == nullptr)
    std::fill_n(to + h - columns, columns, T{});
  else
    std::copy_n(from, columns, to + h - columns);
}

template <class T>
void splice(const SpliceRowsArgs& a, ThreadPool& pool) {
  const std::int64_t h = row_length(a.x), columns = is_present(a.added) ? row_length(a.added) : h;
  const T* added = is_present(a.added) ? a.added.as<T>() : nullptr;
  dispatch::parallel_for_ranges(
      pool, row_count(a.y), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t row = first; row < first + n; ++row) {
          T* const to = a.y.as<T>() + row * h;
          const detail::SplicedRow from = detail::spliced_row(row, a.n, a.seq);
          if (from.is_virtual)
            put_virtual_row(added == nullptr ? nullptr : added + from.row * columns, columns, to, h);
          else
            std::copy_n(a.x.as<T>() + from.row * h, h, to);
        }
      });
}

template <class T>
void sum_virtual_rows(const SpliceRowsBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = row_length(a.dy), columns = row_length(a.dadded), n = row_count(a.dadded);
  const std::int64_t of_sequence = n + a.seq, sequences = row_count(a.dy) / of_sequence;
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  dispatch::parallel_for_ranges(
      pool, n, detail::rows_per_item(columns * sequences), [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row)
          for (std::int64_t at = 0; at < columns; at += kSummedColumns) {
            const std::int64_t some = std::min(kSummedColumns, columns - at);
            float sum[kSummedColumns] = {};
            for (std::int64_t s = 0; s < sequences; ++s)
              table.accumulate_row(sum, a.dy.as<T>() + (s * of_sequence + row) * h + (h - columns) + at,
                                   some);
            detail::store_sum(a.dadded, row * columns + at, sum, some, a.accumulate);
          }
      });
}

template <class T>
void drop(const DropRowsArgs& a, ThreadPool& pool) {
  const std::int64_t h = row_length(a.x);
  dispatch::parallel_for_ranges(
      pool, row_count(a.y), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t row = first; row < first + n; ++row)
          std::copy_n(a.x.as<T>() + detail::kept_row(row, a.n, a.seq) * h, h, a.y.as<T>() + row * h);
      });
}

template <class T>
void replace(const ReplaceRowsArgs& a, ThreadPool& pool) {
  const std::int64_t h = row_length(a.x), columns = row_length(a.added), n = row_count(a.added);
  dispatch::parallel_for_ranges(
      pool, row_count(a.y), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) {
          T* const to = a.y.as<T>() + row * h;
          if (a.x.data != a.y.data) std::copy_n(a.x.as<T>() + row * h, h, to);
          const std::int32_t position = a.positions.as<std::int32_t>()[row];
          STRATA_DCHECK(position >= 0, "row ", row, " is at position ", position);
          if (position < n) std::copy_n(a.added.as<T>() + position * columns, columns, to + h - columns);
        }
      });
}

/// Requires that `view` has whole sequences of `rows` rows each.
void require_sequences(dispatch::Check& check, const char* name, const TensorView& view, std::int64_t n,
                       std::int64_t seq, std::int64_t rows) {
  check.require(n >= 0 && seq > 0, n, " virtual rows before sequences of ", seq,
                "; there must be none or more, before 1 or more");
  if (!check.status().is_ok()) return;
  check.require(is_present(view) && row_count(view) % rows == 0, name, " has ", row_count(view),
                " rows; it must have a multiple of ", rows);
}
void require_columns(dispatch::Check& check, const TensorView& added, const TensorView& of) {
  check.require(added.shape.rank == 2 && row_length(added) > 0 && row_length(added) <= row_length(of),
                "virtual rows of ", row_length(added), " columns; there must be 1 to ", row_length(of));
}

}  // namespace

STRATA_OP(splice_rows, SpliceRowsArgs);
STRATA_OP(splice_rows_backward, SpliceRowsBackwardArgs);
STRATA_OP(drop_rows, DropRowsArgs);
STRATA_OP(replace_rows, ReplaceRowsArgs);

void splice_rows_host(const SpliceRowsArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { splice<T>(a, pool); });
}
void splice_rows_backward_host(const SpliceRowsBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) { sum_virtual_rows<T>(a, pool); });
}
void drop_rows_host(const DropRowsArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { drop<T>(a, pool); });
}
void replace_rows_host(const ReplaceRowsArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { replace<T>(a, pool); });
}

Status splice_rows_async(Backend& backend, Stream& stream, const SpliceRowsArgs& a) {
  dispatch::Check check("splice_rows", "x", a.x);
  require_sequences(check, "x", a.x, a.n, a.seq, a.seq);
  if (is_present(a.added)) {
    require_columns(check, a.added, a.x);
    check.rows("the virtual rows", a.added, a.n, row_length(a.added));
  }
  STRATA_TRY(check.status());
  STRATA_TRY(check.rows("y", a.y, row_count(a.x) / a.seq * (a.n + a.seq), row_length(a.x)).status());
  return dispatch::enqueue(backend, stream, splice_rows_op, a, {a.x, a.added}, {a.y});
}

Status splice_rows_backward_async(Backend& backend, Stream& stream, const SpliceRowsBackwardArgs& a) {
  dispatch::Check check("splice_rows_backward", "dy", a.dy);
  const std::int64_t n = row_count(a.dadded);
  require_sequences(check, "dy", a.dy, n, a.seq, n + a.seq);
  require_columns(check, a.dadded, a.dy);
  check.gradient("the gradient of the virtual rows", a.dadded, {n, row_length(a.dadded)}, a.accumulate);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, splice_rows_backward_op, a, {a.dy}, {a.dadded});
}

Status drop_rows_async(Backend& backend, Stream& stream, const DropRowsArgs& a) {
  dispatch::Check check("drop_rows", "x", a.x);
  require_sequences(check, "x", a.x, a.n, a.seq, a.n + a.seq);
  STRATA_TRY(check.status());
  STRATA_TRY(check.rows("y", a.y, row_count(a.x) / (a.n + a.seq) * a.seq, row_length(a.x)).status());
  return dispatch::enqueue(backend, stream, drop_rows_op, a, {a.x}, {a.y});
}

Status replace_rows_async(Backend& backend, Stream& stream, const ReplaceRowsArgs& a) {
  dispatch::Check check("replace_rows", "x", a.x);
  require_columns(check, a.added, a.x);
  check.rows("the virtual rows", a.added, row_count(a.added), row_length(a.added))
      .elements("positions", a.positions, DType::i32, row_count(a.x))
      .rows("y", a.y, row_count(a.x), row_length(a.x));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, replace_rows_op, a, {a.x, a.positions, a.added}, {a.y});
}

}  // namespace strata::kernels

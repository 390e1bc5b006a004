#include <strata/kernels/cast_rows.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/convert.h>

#include "work_split.h"

namespace strata::kernels {
namespace {

using dispatch::row_count;
using dispatch::row_length;

// cast_rows_async() has checked dtypes and sizes, so a failure is a bug.
void must_be_ok(const Status& status) { STRATA_ASSERT(status.is_ok(), "cast_rows: ", status.message()); }

void cast(DType from, const std::byte* x, DType to, std::byte* y, std::int64_t n) {
  const auto bytes = [&](DType dtype) { return static_cast<std::size_t>(n) * size_of(dtype); };
  if (from == to) {
    std::memcpy(y, x, bytes(to));
    return;
  }
  if (to == DType::f32) {
    must_be_ok(widen_to_f32(from, {x, bytes(from)}, {reinterpret_cast<float*>(y), bytes(from) / 2}));
    return;
  }
  if (from == DType::f32) {
    must_be_ok(narrow_from_f32({reinterpret_cast<const float*>(x), bytes(to) / 2}, to, {y, bytes(to)}));
    return;
  }
  std::array<float, 512> wide;
  for (std::int64_t done = 0; done < n;) {
    const auto some = std::min(static_cast<std::size_t>(n - done), wide.size());
    must_be_ok(widen_to_f32(from, {x + done * 2, some * 2}, {wide.data(), some}));
    must_be_ok(narrow_from_f32({wide.data(), some}, to, {y + done * 2, some * 2}));
    done += static_cast<std::int64_t>(some);
  }
}

/// y = y + x in f32.
void add(DType from, const std::byte* x, DType to, std::byte* y, std::int64_t n) {
  std::array<float, 512> term, sum;
  for (std::int64_t done = 0; done < n; done += std::ssize(sum)) {
    const std::int64_t some = std::min(n - done, std::ssize(sum));
    std::byte* const part = y + done * static_cast<std::int64_t>(size_of(to));
    cast(from, x + done * static_cast<std::int64_t>(size_of(from)), DType::f32,
         reinterpret_cast<std::byte*>(term.data()), some);
    cast(to, part, DType::f32, reinterpret_cast<std::byte*>(sum.data()), some);
    for (std::size_t i = 0; i < static_cast<std::size_t>(some); ++i) sum[i] += term[i];
    cast(DType::f32, reinterpret_cast<const std::byte*>(sum.data()), to, part, some);
  }
}

/// The memory range from the first value of the rows to the last, including the gaps between rows.
TensorView strided_extent(const TensorView& rows, std::int64_t stride) {
  if (stride == 0 || rows.n_elems() == 0) return rows;
  return {rows.data, Shape{(row_count(rows) - 1) * stride + row_length(rows)}, rows.dtype};
}

}  // namespace

STRATA_OP(cast_rows, CastRowsArgs);

void cast_rows_host(const CastRowsArgs& a, ThreadPool& pool) {
  const std::int64_t columns = row_length(a.x);
  const auto put = a.adds ? &add : &cast;
  const auto step = [&](const TensorView& view, std::int64_t stride) {
    return (stride == 0 ? columns : stride) * static_cast<std::int64_t>(size_of(view.dtype));
  };
  if (row_count(a.x) * columns == 0) return;
  if (a.x_stride % columns == 0 && a.x_stride <= columns && a.y_stride % columns == 0 &&
      a.y_stride <= columns) {
    // Both sides are contiguous, so the split into rows does not matter.
    const auto x_size = static_cast<std::int64_t>(size_of(a.x.dtype)),
               y_size = static_cast<std::int64_t>(size_of(a.y.dtype));
    dispatch::parallel_for_ranges(
        pool, row_count(a.x) * columns, detail::kElementsPerItem, [&](std::int64_t i, std::int64_t n) {
          put(a.x.dtype, a.x.data + i * x_size, a.y.dtype, a.y.data + i * y_size, n);
        });
    return;
  }
  const std::int64_t x_step = step(a.x, a.x_stride), y_step = step(a.y, a.y_stride);
  dispatch::parallel_for_ranges(
      pool, row_count(a.x), detail::rows_per_item(columns), [&](std::int64_t row, std::int64_t count) {
        for (const std::int64_t end = row + count; row < end; ++row)
          put(a.x.dtype, a.x.data + row * x_step, a.y.dtype, a.y.data + row * y_step, columns);
      });
}

Status cast_rows_async(Backend& backend, Stream& stream, const CastRowsArgs& a) {
  dispatch::Check check("cast_rows", "x", a.x);
  check.require(is_stored_dtype(a.y.dtype), "y is ", to_string(a.y.dtype), "; it must be f32, bf16 or f16")
      .rows("y", a.y, a.y.dtype, row_count(a.x), row_length(a.x));
  for (const auto& [name, stride] : {std::pair{"x", a.x_stride}, std::pair{"y", a.y_stride}})
    check.require(stride == 0 || stride >= row_length(a.x), name, "_stride is ", stride,
                  "; it must be 0 or at least the row length ", row_length(a.x));
  STRATA_TRY(check.status());
  const TensorView y = strided_extent(a.y, a.y_stride);
  return dispatch::enqueue(backend, stream, cast_rows_op, a,
                           {strided_extent(a.x, a.x_stride), a.adds ? y : TensorView{}}, {y});
}

}  // namespace strata::kernels

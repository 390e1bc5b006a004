#include <strata/kernels/mixers/divided_columns.h>

#include <cstring>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "work_split.h"

namespace strata::kernels {
namespace {

using dispatch::row_count;

/// Calls copy(row of x, row of the first, row of the second, bytes) for each run of columns of each row. A
/// row of the part that has no column of the run is null.
template <class Copy>
void for_each_run(const DividedColumns& columns, std::int64_t rows, std::int64_t width, std::byte* x,
                  std::byte* first, std::byte* second, ThreadPool& pool, const Copy& copy) {
  const std::int64_t of_first = columns.first * width, of_second = columns.second * width;
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  dispatch::parallel_for_ranges(pool, rows, detail::rows_per_item(columns.all()),
                                [&](std::int64_t row, std::int64_t n) {
                                  std::byte* whole = x + row * columns.all() * width;
                                  std::byte* one = first + row * columns.of_first() * width;
                                  std::byte* other = second + row * columns.of_second() * width;
                                  for (const std::int64_t end = row + n; row < end; ++row) {
                                    for (std::int64_t group = 0; group < columns.groups; ++group) {
                                      copy(whole, one, size(of_first));
                                      copy(whole + of_first, other, size(of_second));
                                      whole += of_first + of_second;
                                      one += of_first;
                                      other += of_second;
                                    }
                                    copy(whole, one, size(columns.tail * width));
                                    whole += columns.tail * width;
                                    one += columns.tail * width;
                                  }
                                });
}

Status check(const char* op, const TensorView& x, const TensorView& first, const TensorView& second,
             const DividedColumns& c) {
  return dispatch::Check(op, "x", x)
      .require(c.groups >= 1 && c.first >= 0 && c.second >= 0 && c.tail >= 0, "columns are ", c.groups,
               " groups of ", c.first, " and ", c.second, ", and ", c.tail, " more")
      .rows("x", x, row_count(x), c.all())
      .rows("first", first, row_count(x), c.of_first())
      .rows("second", second, row_count(x), c.of_second())
      .status();
}

}  // namespace

STRATA_OP(divide_columns, DivideColumnsArgs);
STRATA_OP(unite_columns, UniteColumnsArgs);

void divide_columns_host(const DivideColumnsArgs& a, ThreadPool& pool) {
  for_each_run(a.columns, row_count(a.x), static_cast<std::int64_t>(size_of(a.x.dtype)), a.x.data,
               a.first.data, a.second.data, pool,
               [](const std::byte* x, std::byte* part, std::size_t n) { std::memcpy(part, x, n); });
}

void unite_columns_host(const UniteColumnsArgs& a, ThreadPool& pool) {
  for_each_run(a.columns, row_count(a.x), static_cast<std::int64_t>(size_of(a.x.dtype)), a.x.data,
               a.first.data, a.second.data, pool,
               [](std::byte* x, const std::byte* part, std::size_t n) { std::memcpy(x, part, n); });
}

Status divide_columns_async(Backend& backend, Stream& stream, const DivideColumnsArgs& a) {
  STRATA_TRY(check("divide_columns", a.x, a.first, a.second, a.columns));
  return dispatch::enqueue(backend, stream, divide_columns_op, a, {a.x}, {a.first, a.second});
}

Status unite_columns_async(Backend& backend, Stream& stream, const UniteColumnsArgs& a) {
  STRATA_TRY(check("unite_columns", a.x, a.first, a.second, a.columns));
  return dispatch::enqueue(backend, stream, unite_columns_op, a, {a.first, a.second}, {a.x});
}

}  // namespace strata::kernels

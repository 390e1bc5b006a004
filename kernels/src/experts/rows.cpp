#include <strata/kernels/experts/rows.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include <strata/simd/convert.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "experts/router_math.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(route_rows, RouteRowsArgs);
STRATA_OP(gather_rows, GatherRowsArgs);
STRATA_OP(sum_rows, SumRowsArgs);

namespace {

constexpr std::int64_t kColumnsTogether = 512;  // so many sums are in the first cache

template <class T>
void sum_rows(const SumRowsArgs& a, ThreadPool& pool) {
  const std::int64_t tokens = dispatch::row_count(a.y), h = dispatch::row_length(a.y),
                     chosen = tokens > 0 ? a.position.n_elems() / tokens : 0;
  const auto* const position = a.position.as<std::int32_t>();
  const T *const rows = a.rows.as<T>(), *const base = dispatch::is_present(a.base) ? a.base.as<T>() : nullptr;
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  dispatch::parallel_for_ranges(
      pool, tokens, detail::rows_per_item(h * chosen), [&](std::int64_t first, std::int64_t n) {
        alignas(64) float sum[kColumnsTogether];
        for (std::int64_t t = first; t < first + n; ++t)
          for (std::int64_t c = 0; c < h; c += kColumnsTogether) {
            const std::int64_t columns = std::min(kColumnsTogether, h - c);
            std::fill_n(sum, columns, 0.0f);
            for (std::int64_t j = 0; j < chosen; ++j)
              table.accumulate_row(sum, rows + std::int64_t{position[t * chosen + j]} * h + c, columns);
            if (base != nullptr) table.accumulate_row(sum, base + t * h + c, columns);
            simd::narrow(sum, a.y.as<T>() + t * h + c, columns);
          }
      });
}

/// Requires rows that are a multiple of the tokens, and as many i32 as rows.
void check_choices(dispatch::Check& check, const char* name, const TensorView& choices, std::int64_t rows,
                   std::int64_t tokens) {
  check.elements(name, choices, DType::i32, rows)
      .require(tokens > 0 ? rows % tokens == 0 : rows == 0, rows, " rows are not a multiple of ", tokens,
               " tokens")
      .require(rows <= std::numeric_limits<std::int32_t>::max(), rows, " rows are more than ",
               std::numeric_limits<std::int32_t>::max());
}

}  // namespace

// One thread: a choice costs two additions, and the products of its row a million. Each offset is first the
// number of rows of the expert before, then the place of the expert's next row, and at last where it ends.
void route_rows_host(const RouteRowsArgs& a, ThreadPool&) {
  const std::int64_t choices = a.experts.n_elems(), experts = a.offsets.n_elems() - 1;
  const auto* const chosen = a.experts.as<std::int32_t>();
  auto *const offsets = a.offsets.as<std::int32_t>(), *const source = a.source.as<std::int32_t>(),
              *const position = a.position.as<std::int32_t>();
  std::fill_n(offsets, experts + 1, 0);
  for (std::int64_t c = 0; c < choices; ++c) ++offsets[detail::bounded_expert(chosen[c], experts) + 1];
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  for (std::int64_t c = 0; c < choices; ++c) {
    const std::int32_t row = offsets[detail::bounded_expert(chosen[c], experts)]++;
    source[row] = static_cast<std::int32_t>(c);
    position[c] = row;
  }
  for (std::int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

void gather_rows_host(const GatherRowsArgs& a, ThreadPool& pool) {
  const std::int64_t rows = a.source.n_elems(), tokens = dispatch::row_count(a.x),
                     h = dispatch::row_length(a.x), chosen = tokens > 0 ? rows / tokens : 1;
  const std::size_t bytes = static_cast<std::size_t>(h) * size_of(a.x.dtype);
  const auto* const source = a.source.as<std::int32_t>();
  dispatch::parallel_for_ranges(
      pool, rows, detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t r = first; r < first + n && bytes > 0; ++r)
          std::memcpy(a.rows.data + static_cast<std::size_t>(r) * bytes,
                      a.x.data + static_cast<std::size_t>(source[r] / chosen) * bytes, bytes);
      });
}

void sum_rows_host(const SumRowsArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.rows.dtype, [&]<class T>(std::type_identity<T>) { sum_rows<T>(a, pool); });
}

Status route_rows_async(Backend& backend, Stream& stream, const RouteRowsArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.experts), rows = a.experts.n_elems();
  dispatch::Check check("route_rows");
  check.rows("experts", a.experts, DType::i32, tokens, dispatch::row_length(a.experts))
      .elements("offsets", a.offsets, DType::i32, a.offsets.n_elems())
      .require(a.offsets.n_elems() > 1, "offsets has ", a.offsets.n_elems(),
               " elements; it needs one more than there are experts, at least 2")
      .require(a.offsets.n_elems() <= detail::kMostExperts + 1, "offsets has ", a.offsets.n_elems(),
               " elements; there may be ", detail::kMostExperts + 1);
  check_choices(check, "source", a.source, rows, tokens);
  check.elements("position", a.position, DType::i32, rows);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, route_rows_op, a, {a.experts}, {a.offsets, a.source, a.position});
}

Status gather_rows_async(Backend& backend, Stream& stream, const GatherRowsArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.rows), tokens = dispatch::row_count(a.x),
                     h = dispatch::row_length(a.x);
  dispatch::Check check("gather_rows", "x", a.x);
  check.rows("x", a.x, tokens, h).rows("rows", a.rows, rows, h);
  check_choices(check, "source", a.source, rows, tokens);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, gather_rows_op, a, {a.x, a.source}, {a.rows});
}

Status sum_rows_async(Backend& backend, Stream& stream, const SumRowsArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.rows), tokens = dispatch::row_count(a.y),
                     h = dispatch::row_length(a.y);
  dispatch::Check check("sum_rows", "rows", a.rows);
  check.rows("rows", a.rows, rows, h).optional_rows("base", a.base, tokens, h).rows("y", a.y, tokens, h);
  check_choices(check, "position", a.position, rows, tokens);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, sum_rows_op, a, {a.rows, a.position, a.base}, {a.y});
}

}  // namespace strata::kernels

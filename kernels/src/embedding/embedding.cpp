#include <strata/kernels/embedding.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/assert.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

constexpr std::int64_t kColumns = 512;  // columns of a row that are summed at a time, on the stack

/// Row `row` of `out` (+)= the sum over i in [0, n) of the rows row_at(i), in that order.
template <class T, class RowAt>
void sum_rows(const TensorView& out, std::int64_t row, std::int64_t n, bool accumulate, const RowAt& row_at) {
  const std::int64_t h = dispatch::row_length(out);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  for (std::int64_t at = 0; at < h; at += kColumns) {
    const std::int64_t columns = std::min(kColumns, h - at);
    float sum[kColumns] = {};
    for (std::int64_t i = 0; i < n; ++i) table.accumulate_row(sum, row_at(i) + at, columns);
    detail::store_sum(out, row * h + at, sum, columns, accumulate);
  }
}

template <class T>
void forward(const EmbeddingForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.table);
  const auto* ids = a.ids.as<std::int32_t>();
  dispatch::parallel_for_ranges(
      pool, a.ids.n_elems(), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const std::int64_t row = ids[t] + a.offset;
          const bool has = row >= 0 && row < a.table.shape.dim(0);
          STRATA_DCHECK(has || a.is_part, "token ", t, " is row ", row, " of ", a.table.shape.dim(0));
          if (!has)
            std::fill_n(a.x.as<T>() + t * h, h, from_f32<T>(0.0f));
          else
            std::copy_n(a.table.as<T>() + row * h, h, a.x.as<T>() + t * h);
        }
      });
}

template <class T>
void backward(const EmbeddingBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.dtable);
  const std::int64_t vocab = a.dtable.shape.dim(0);
  const std::int64_t t_count = a.ids.n_elems();
  const auto* ids = a.ids.as<std::int32_t>();
  const auto* dx = a.dx.as<T>();
  // Counting sort: `order` has the token indices grouped by table row, ascending within a row. Tokens whose
  // row another part of the table has come last, as those of a row `vocab`.
  auto* begin = reinterpret_cast<std::int32_t*>(a.workspace.data);
  auto* order = begin + vocab + 2;
  std::fill_n(begin, vocab + 2, 0);
  const auto row_of = [&](std::int64_t t) {
    const std::int64_t row = ids[t] + a.offset;
    const bool has = row >= 0 && row < vocab;
    STRATA_DCHECK(has || a.is_part, "token ", t, " is row ", row, " of ", vocab);
    return has ? row : vocab;
  };
  for (std::int64_t t = 0; t < t_count; ++t) ++begin[row_of(t) + 1];
  for (std::int64_t v = 0; v <= vocab; ++v) begin[v + 1] += begin[v];
  // Filling from the back leaves begin[v + 1] at the start of row v, so row v is read from begin[v + 1] to
  // the start of the next one.
  for (std::int64_t t = t_count - 1; t >= 0; --t)
    order[--begin[row_of(t) + 1]] = static_cast<std::int32_t>(t);

  dispatch::parallel_for_ranges(pool, vocab, detail::rows_per_item(h),
                                [&](std::int64_t first, std::int64_t n) {
                                  for (std::int64_t v = first; v < first + n; ++v) {
                                    const std::int64_t from = begin[v + 1];
                                    const std::int64_t to = begin[v + 2];
                                    if (from == to && a.accumulate) continue;
                                    sum_rows<T>(a.dtable, v, to - from, a.accumulate,
                                                [&](std::int64_t i) { return dx + order[from + i] * h; });
                                  }
                                });
}

dispatch::Check check(const char* op, const TensorView& ids, const TensorView& x, const char* x_name,
                      const TensorView& table) {
  dispatch::Check check(op, x_name, x);
  check.elements("ids", ids, DType::i32, ids.n_elems())
      .rows(x_name, x, ids.n_elems(), dispatch::row_length(table));
  return check;
}

}  // namespace

STRATA_OP(embedding_forward, EmbeddingForwardArgs);
STRATA_OP(embedding_backward, EmbeddingBackwardArgs);

void embedding_forward_host(const EmbeddingForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
}

void embedding_backward_host(const EmbeddingBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dx.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}

Status embedding_forward_async(Backend& backend, Stream& stream, const EmbeddingForwardArgs& a) {
  STRATA_TRY(check("embedding_forward", a.ids, a.x, "x", a.table)
                 .shape("table", a.table, a.x.dtype, {a.table.shape.dims[0], dispatch::row_length(a.table)})
                 .status());
  return dispatch::enqueue(backend, stream, embedding_forward_op, a, {a.ids, a.table}, {a.x});
}

std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocab) noexcept {
  return static_cast<std::size_t>(vocab + 2 + tokens) * sizeof(std::int32_t);
}

Status embedding_backward_async(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& a) {
  STRATA_TRY(
      check("embedding_backward", a.ids, a.dx, "dx", a.dtable)
          .gradient("dtable", a.dtable, {a.dtable.shape.dims[0], dispatch::row_length(a.dtable)},
                    a.accumulate)
          .workspace(a.workspace, embedding_backward_workspace_bytes(a.ids.n_elems(), a.dtable.shape.dims[0]))
          .status());
  return dispatch::enqueue(backend, stream, embedding_backward_op, a, {a.ids, a.dx}, {a.dtable}, a.workspace);
}

}  // namespace strata::kernels

#include <strata/simd/convert.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>

#include "attention/merge_heads.h"
#include "dtype_dispatch.h"
#include "work_split.h"

namespace strata::kernels {

STRATA_OP(merge_attention, MergeAttentionArgs);
STRATA_OP(attention_delta, AttentionDeltaArgs);

void merge_attention_host(const MergeAttentionArgs& a, ThreadPool& pool) {
  const std::int64_t rows = dispatch::row_count(a.out), width = dispatch::row_length(a.out),
                     d = width / a.heads;
  dispatch::parallel_for_ranges(
      pool, rows, detail::rows_per_item(width), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          for (std::int64_t head = 0; head < a.heads; ++head) {
            const std::int64_t stat = detail::stat_of(t, head, a.heads, a.queries), at = t * width + head * d;
            const detail::MergedWeights w =
                detail::merge_lse(a.lse_a.as<float>()[stat], a.lse_b.as<float>()[stat]);
            const float *x = a.out_a.as<float>() + at, *y = a.out_b.as<float>() + at;
            float* out = a.out.as<float>() + at;
            for (std::int64_t c = 0; c < d; ++c) out[c] = x[c] * w.a + y[c] * w.b;
            a.lse.as<float>()[stat] = w.lse;
          }
      });
}

namespace {

template <class T>
void delta_rows(const AttentionDeltaArgs& a, ThreadPool& pool) {
  const std::int64_t rows = dispatch::row_count(a.out), width = dispatch::row_length(a.out),
                     d = width / a.heads;
  dispatch::parallel_for_ranges(pool, rows, detail::rows_per_item(width),
                                [&](std::int64_t first, std::int64_t n) {
                                  for (std::int64_t t = first; t < first + n; ++t)
                                    for (std::int64_t head = 0; head < a.heads; ++head) {
                                      const std::int64_t at = t * width + head * d;
                                      a.delta.as<float>()[detail::stat_of(t, head, a.heads, a.queries)] =
                                          detail::head_dot(a.out.as<float>() + at, a.dout.as<T>() + at, d);
                                    }
                                });
}

dispatch::Check check_rows(const char* op, const TensorView& out, std::int64_t heads, std::int64_t queries) {
  const std::int64_t rows = dispatch::row_count(out), width = dispatch::row_length(out);
  dispatch::Check check(op, "out", out);
  check.rows("out", out, DType::f32, rows, width)
      .require(heads >= 1 && width % heads == 0, "rows of ", width, " are not a multiple of ", heads,
               " heads")
      .require(queries >= 1 && rows % queries == 0, rows, " rows are not a multiple of ", queries,
               " queries");
  return check;
}

}  // namespace

void attention_delta_host(const AttentionDeltaArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dout.dtype, [&]<class T>(std::type_identity<T>) { delta_rows<T>(a, pool); });
}

Status merge_attention_async(Backend& backend, Stream& stream, const MergeAttentionArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.out), width = dispatch::row_length(a.out);
  dispatch::Check check = check_rows("merge_attention", a.out, a.heads, a.queries);
  check.rows("out_a", a.out_a, DType::f32, rows, width)
      .rows("out_b", a.out_b, DType::f32, rows, width)
      .elements("lse_a", a.lse_a, DType::f32, rows * a.heads)
      .elements("lse_b", a.lse_b, DType::f32, rows * a.heads)
      .elements("lse", a.lse, DType::f32, rows * a.heads);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, merge_attention_op, a, {a.out_a, a.lse_a, a.out_b, a.lse_b},
                           {a.out, a.lse});
}

Status attention_delta_async(Backend& backend, Stream& stream, const AttentionDeltaArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.out), width = dispatch::row_length(a.out);
  dispatch::Check check = check_rows("attention_delta", a.out, a.heads, a.queries);
  check.rows("dout", a.dout, a.dout.dtype, rows, width)
      .elements("delta", a.delta, DType::f32, rows * a.heads);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, attention_delta_op, a, {a.out, a.dout}, {a.delta});
}

}  // namespace strata::kernels

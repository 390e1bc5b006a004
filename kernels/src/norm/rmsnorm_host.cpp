#include <algorithm>

#include <strata/kernels/rmsnorm.h>
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
void rmsnorm_forward(const RmsnormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = ops::row_length(a.x);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  ops::parallel_for_ranges(
      pool, ops::row_count(a.x), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          table.rmsnorm_forward(detail::normed_row<T>(table, a, t), a.weight.as<T>(), a.y.as<T>() + t * h,
                                a.rstd.as<float>() + t, a.eps, a.offset, h);
      });
}

template <class T>
void rmsnorm_backward(const RmsnormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = ops::row_length(a.x);
  const std::int64_t rows = ops::row_count(a.x);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const std::int64_t blocks =
      detail::sum_row_blocks(rows, h, partials, pool, [&](std::int64_t t, float* dweight) {
        table.rmsnorm_backward(a.x.as<T>() + t * h, a.weight.as<T>(), a.rstd.as<float>()[t],
                               a.dy.as<T>() + t * h, a.dx.as<T>() + t * h,
                               detail::row_or_null<T>(a.residual, t), dweight, a.offset, h);
      });
  detail::sum_partials(partials, blocks, h, a.dweight, a.accumulate_dweight, pool);
}

/// The segments of a qkv row that are normalized, and their offsets.
struct NormSegments {
  template <class Args>
  explicit NormSegments(const Args& a)
      : heads(a.heads),
        count(a.heads + a.kv_heads),
        n(ops::row_length(a.q_weight)),
        m(ops::row_length(a.k_weight)),
        end(at(count)) {}
  std::int64_t at(std::int64_t segment) const {
    return segment < heads ? segment * n : heads * n + (segment - heads) * m;
  }
  std::int64_t elems(std::int64_t segment) const { return segment < heads ? n : m; }

  std::int64_t heads, count, n, m, end;
};

template <class T>
void qk_norm_forward(const QkNormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = ops::row_length(a.qkv);
  const NormSegments segments(a);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  ops::parallel_for_ranges(
      pool, ops::row_count(a.qkv), detail::rows_per_item(width), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const T* x = a.qkv.as<T>() + t * width;
          T* y = a.y.as<T>() + t * width;
          for (std::int64_t segment = 0; segment < segments.count; ++segment)
            table.rmsnorm_forward(x + segments.at(segment),
                                  (segment < a.heads ? a.q_weight : a.k_weight).as<T>(),
                                  y + segments.at(segment), a.rstd.as<float>() + t * segments.count + segment,
                                  a.eps, a.offset, segments.elems(segment));
          if (x != y) std::copy(x + segments.end, x + width, y + segments.end);
        }
      });
}

template <class T>
void qk_norm_backward(const QkNormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = ops::row_length(a.qkv);
  const std::int64_t rows = ops::row_count(a.qkv);
  const NormSegments segments(a);
  const std::int64_t both = segments.n + segments.m;
  auto* partials = reinterpret_cast<float*>(a.workspace.data);  // for each block: dq_weight, dk_weight
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const auto add_row = [&](std::int64_t t, float* partial) {
    const T* x = a.qkv.as<T>() + t * width;
    const T* dy = a.dy.as<T>() + t * width;
    T* dx = a.dx.as<T>() + t * width;
    for (std::int64_t segment = 0; segment < segments.count; ++segment)
      table.rmsnorm_backward(x + segments.at(segment), (segment < a.heads ? a.q_weight : a.k_weight).as<T>(),
                             a.rstd.as<float>()[t * segments.count + segment], dy + segments.at(segment),
                             dx + segments.at(segment), nullptr,
                             partial + (segment < a.heads ? 0 : segments.n), a.offset,
                             segments.elems(segment));
    if (dy != dx) std::copy(dy + segments.end, dy + width, dx + segments.end);
  };
  const std::int64_t blocks = detail::sum_row_blocks(rows, both, partials, pool, add_row);
  detail::sum_partials(partials, blocks, both, a.dq_weight, a.accumulate_dq_weight, pool);
  detail::sum_partials(partials + segments.n, blocks, both, a.dk_weight, a.accumulate_dk_weight, pool);
}

}  // namespace

void rmsnorm_forward_host(const RmsnormForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { rmsnorm_forward<T>(a, pool); });
}
void rmsnorm_backward_host(const RmsnormBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { rmsnorm_backward<T>(a, pool); });
}
void qk_norm_forward_host(const QkNormForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { qk_norm_forward<T>(a, pool); });
}
void qk_norm_backward_host(const QkNormBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { qk_norm_backward<T>(a, pool); });
}

}  // namespace strata::kernels

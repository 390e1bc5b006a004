#include <strata/kernels/rmsnorm.h>

#include <algorithm>

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
void rmsnorm_forward(const RmsnormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.x);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.x), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          table.rmsnorm_forward(detail::normed_row<T>(table, a, t), a.weight.as<T>(), a.y.as<T>() + t * h,
                                a.rstd.as<float>() + t, a.eps, a.offset, h);
      });
}

template <class T>
void rmsnorm_backward(const RmsnormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.x);
  const std::int64_t rows = dispatch::row_count(a.x);
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

/// The segments of a qkv row that are normalized, and their offsets. Those of values have no weight.
struct NormSegments {
  template <class Args>
  explicit NormSegments(const Args& a)
      : heads(a.heads),
        weighted(a.heads + a.kv_heads),
        count(weighted + (a.values ? a.kv_heads : 0)),
        n(dispatch::row_length(a.q_weight)),
        m(dispatch::row_length(a.k_weight)),
        end(at(count)) {}
  std::int64_t at(std::int64_t segment) const {
    return segment < heads ? segment * n : heads * n + (segment - heads) * m;
  }
  std::int64_t elems(std::int64_t segment) const { return segment < heads ? n : m; }
  template <class T, class Args>
  const T* weight_of(const Args& a, std::int64_t segment) const {
    if (segment >= weighted) return nullptr;
    return (segment < heads ? a.q_weight : a.k_weight).template as<T>();
  }

  std::int64_t heads, weighted, count, n, m, end;
};

template <class T>
void qk_norm_forward(const QkNormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = dispatch::row_length(a.qkv);
  const NormSegments segments(a);
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.qkv), detail::rows_per_item(width),
      [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const T* x = a.qkv.as<T>() + t * width;
          T* y = a.y.as<T>() + t * width;
          for (std::int64_t segment = 0; segment < segments.count; ++segment)
            table.rmsnorm_forward(x + segments.at(segment), segments.weight_of<T>(a, segment),
                                  y + segments.at(segment), a.rstd.as<float>() + t * segments.count + segment,
                                  a.eps, a.offset, segments.elems(segment));
          if (x != y) std::copy(x + segments.end, x + width, y + segments.end);
        }
      });
}

template <class T>
void qk_norm_backward(const QkNormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = dispatch::row_length(a.qkv);
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const NormSegments segments(a);
  const std::int64_t both = segments.n + segments.m;
  auto* partials = reinterpret_cast<float*>(a.workspace.data);  // for each block: dq_weight, dk_weight
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  const auto add_row = [&](std::int64_t t, float* partial) {
    const T* x = a.qkv.as<T>() + t * width;
    const T* dy = a.dy.as<T>() + t * width;
    T* dx = a.dx.as<T>() + t * width;
    for (std::int64_t segment = 0; segment < segments.count; ++segment)
      table.rmsnorm_backward(
          x + segments.at(segment), segments.weight_of<T>(a, segment),
          a.rstd.as<float>()[t * segments.count + segment], dy + segments.at(segment),
          dx + segments.at(segment), nullptr,
          segment < segments.weighted ? partial + (segment < a.heads ? 0 : segments.n) : nullptr, a.offset,
          segments.elems(segment));
    if (dy != dx) std::copy(dy + segments.end, dy + width, dx + segments.end);
  };
  const std::int64_t blocks = detail::sum_row_blocks(rows, both, partials, pool, add_row);
  detail::sum_partials(partials, blocks, both, a.dq_weight, a.accumulate_dq_weight, pool);
  detail::sum_partials(partials + segments.n, blocks, both, a.dk_weight, a.accumulate_dk_weight, pool);
}

template <class Args>
dispatch::Check check_qk(const char* op, const Args& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const std::int64_t n = dispatch::row_length(a.q_weight), m = dispatch::row_length(a.k_weight);
  dispatch::Check check(op, "qkv", a.qkv);
  check
      .require(a.heads >= 1 && a.kv_heads >= 1, a.heads, " heads and ", a.kv_heads,
               " key heads; both must be at least 1")
      .shape("q_weight", a.q_weight, a.qkv.dtype, {n})
      .shape("k_weight", a.k_weight, a.qkv.dtype, {m})
      .rows("qkv", a.qkv, rows, a.heads * n + 2 * a.kv_heads * m)
      .elements("rstd", a.rstd, DType::f32, rows * (a.heads + (a.values ? 2 : 1) * a.kv_heads));
  return check;
}

}  // namespace

STRATA_OP(rmsnorm_forward, RmsnormForwardArgs);
STRATA_OP(rmsnorm_backward, RmsnormBackwardArgs);
STRATA_OP(qk_norm_forward, QkNormForwardArgs);
STRATA_OP(qk_norm_backward, QkNormBackwardArgs);

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

Status rmsnorm_forward_async(Backend& backend, Stream& stream, const RmsnormForwardArgs& a) {
  STRATA_TRY(detail::check_norm_forward("rmsnorm_forward", a).status());
  return dispatch::enqueue(backend, stream, rmsnorm_forward_op, a, {a.x, a.weight, a.added},
                           {a.y, a.rstd, a.sum});
}

std::size_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept {
  return detail::row_sums_bytes(rows, hidden);
}

Status rmsnorm_backward_async(Backend& backend, Stream& stream, const RmsnormBackwardArgs& a) {
  const std::size_t bytes =
      rmsnorm_backward_workspace_bytes(dispatch::row_count(a.x), dispatch::row_length(a.x));
  STRATA_TRY(detail::check_norm_backward("rmsnorm_backward", a, bytes).status());
  return dispatch::enqueue(backend, stream, rmsnorm_backward_op, a, {a.x, a.weight, a.rstd, a.dy, a.residual},
                           {a.dx, a.dweight}, a.workspace);
}

Status qk_norm_forward_async(Backend& backend, Stream& stream, const QkNormForwardArgs& a) {
  STRATA_TRY(check_qk("qk_norm_forward", a)
                 .rows("y", a.y, dispatch::row_count(a.qkv), dispatch::row_length(a.qkv))
                 .require(a.eps >= 0.0f, "eps is ", a.eps, "; it must be 0 or more")
                 .status());
  return dispatch::enqueue(backend, stream, qk_norm_forward_op, a, {a.qkv, a.q_weight, a.k_weight},
                           {a.y, a.rstd});
}

std::size_t qk_norm_backward_workspace_bytes(std::int64_t rows, std::int64_t q_elems,
                                             std::int64_t k_elems) noexcept {
  return detail::row_sums_bytes(rows, q_elems + k_elems);
}

Status qk_norm_backward_async(Backend& backend, Stream& stream, const QkNormBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const std::int64_t n = dispatch::row_length(a.q_weight), m = dispatch::row_length(a.k_weight);
  STRATA_TRY(check_qk("qk_norm_backward", a)
                 .rows("dy", a.dy, rows, dispatch::row_length(a.qkv))
                 .rows("dx", a.dx, rows, dispatch::row_length(a.qkv))
                 .gradient("dq_weight", a.dq_weight, {n}, a.accumulate_dq_weight)
                 .gradient("dk_weight", a.dk_weight, {m}, a.accumulate_dk_weight)
                 .workspace(a.workspace, qk_norm_backward_workspace_bytes(rows, n, m))
                 .status());
  return dispatch::enqueue(backend, stream, qk_norm_backward_op, a,
                           {a.qkv, a.q_weight, a.k_weight, a.rstd, a.dy}, {a.dx, a.dq_weight, a.dk_weight},
                           a.workspace);
}

}  // namespace strata::kernels

#include <algorithm>

#include <strata/kernels/rmsnorm.h>

#include "norm_rows.h"
#include "op.h"
#include "partial_sums.h"
#include "stored_table.h"

namespace strata::kernels {
namespace {

template <class T>
void rmsnorm_forward(const RmsnormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = detail::row_length(a.x);
  const detail::StoredTable<T>& table = detail::row_table<T>();
  detail::for_runs(pool, detail::row_count(a.x), detail::rows_per_item(h),
                   [&](std::int64_t first, std::int64_t n) {
                     for (std::int64_t t = first; t < first + n; ++t)
                       table.rmsnorm_forward(detail::normed_row<T>(table, a, t), a.weight.as<T>(),
                                             a.y.as<T>() + t * h, a.rstd.as<float>() + t, a.eps, h);
                   });
}

template <class T>
void rmsnorm_backward(const RmsnormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = detail::row_length(a.x);
  const std::int64_t rows = detail::row_count(a.x);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::StoredTable<T>& table = detail::row_table<T>();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* dweight = partials + block * h;
    std::fill_n(dweight, h, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t)
      table.rmsnorm_backward(a.x.as<T>() + t * h, a.weight.as<T>(), a.rstd.as<float>()[t],
                             a.dy.as<T>() + t * h, a.dx.as<T>() + t * h,
                             detail::row_or_null<T>(a.residual, t), dweight, h);
  });
  detail::sum_partials(partials, blocks.count, h, a.dweight, a.accumulate_dweight, pool);
}

template <class T>
void qk_norm_forward(const QkNormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = detail::row_length(a.qkv);
  const std::int64_t d = detail::row_length(a.q_weight);
  const std::int64_t normed = a.heads + a.kv_heads;
  const detail::StoredTable<T>& table = detail::row_table<T>();
  detail::for_runs(
      pool, detail::row_count(a.qkv), detail::rows_per_item(width), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const T* x = a.qkv.as<T>() + t * width;
          T* y = a.y.as<T>() + t * width;
          for (std::int64_t head = 0; head < normed; ++head)
            table.rmsnorm_forward(x + head * d, (head < a.heads ? a.q_weight : a.k_weight).as<T>(),
                                  y + head * d, a.rstd.as<float>() + t * normed + head, a.eps, d);
          if (x != y) std::copy(x + normed * d, x + width, y + normed * d);
        }
      });
}

template <class T>
void qk_norm_backward(const QkNormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = detail::row_length(a.qkv);
  const std::int64_t d = detail::row_length(a.q_weight);
  const std::int64_t rows = detail::row_count(a.qkv);
  const std::int64_t normed = a.heads + a.kv_heads;
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);  // by block: of q, of k
  const detail::StoredTable<T>& table = detail::row_table<T>();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* partial = partials + block * 2 * d;
    std::fill_n(partial, 2 * d, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t) {
      const T* x = a.qkv.as<T>() + t * width;
      const T* dy = a.dy.as<T>() + t * width;
      T* dx = a.dx.as<T>() + t * width;
      for (std::int64_t head = 0; head < normed; ++head)
        table.rmsnorm_backward(x + head * d, (head < a.heads ? a.q_weight : a.k_weight).as<T>(),
                               a.rstd.as<float>()[t * normed + head], dy + head * d, dx + head * d, nullptr,
                               partial + (head < a.heads ? 0 : d), d);
      if (dy != dx) std::copy(dy + normed * d, dy + width, dx + normed * d);
    }
  });
  detail::sum_partials(partials, blocks.count, 2 * d, a.dq_weight, a.accumulate_dq_weight, pool);
  detail::sum_partials(partials + d, blocks.count, 2 * d, a.dk_weight, a.accumulate_dk_weight, pool);
}

}  // namespace

void rmsnorm_forward_host(const RmsnormForwardArgs& a, ThreadPool& pool) {
  detail::with_storage(a.x.dtype, [&]<class T>(std::type_identity<T>) { rmsnorm_forward<T>(a, pool); });
}
void rmsnorm_backward_host(const RmsnormBackwardArgs& a, ThreadPool& pool) {
  detail::with_storage(a.x.dtype, [&]<class T>(std::type_identity<T>) { rmsnorm_backward<T>(a, pool); });
}
void qk_norm_forward_host(const QkNormForwardArgs& a, ThreadPool& pool) {
  detail::with_storage(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { qk_norm_forward<T>(a, pool); });
}
void qk_norm_backward_host(const QkNormBackwardArgs& a, ThreadPool& pool) {
  detail::with_storage(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { qk_norm_backward<T>(a, pool); });
}

}  // namespace strata::kernels

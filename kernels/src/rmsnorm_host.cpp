#include <algorithm>

#include <strata/kernels/rmsnorm.h>

#include "op.h"
#include "partial_sums.h"
#include "row_table.h"

namespace strata::kernels {

void rmsnorm_forward_host(const RmsnormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = detail::row_length(a.x);
  const detail::RowTable& table = detail::row_table();
  detail::for_runs(pool, detail::row_count(a.x), detail::rows_per_item(h),
                   [&](std::int64_t first, std::int64_t n) {
                     for (std::int64_t t = first; t < first + n; ++t)
                       table.rmsnorm_forward(a.x.as<float>() + t * h, a.weight.as<float>(),
                                             a.y.as<float>() + t * h, a.rstd.as<float>() + t, a.eps, h);
                   });
}

void rmsnorm_backward_host(const RmsnormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = detail::row_length(a.x);
  const std::int64_t rows = detail::row_count(a.x);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  const detail::RowTable& table = detail::row_table();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* dweight = partials + block * h;
    std::fill_n(dweight, h, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t)
      table.rmsnorm_backward(a.x.as<float>() + t * h, a.weight.as<float>(), a.rstd.as<float>()[t],
                             a.dy.as<float>() + t * h, a.dx.as<float>() + t * h, dweight, h);
  });
  detail::sum_partials(partials, blocks.count, h, h, a.dweight.as<float>(), a.accumulate_dweight, pool);
}

void qk_norm_forward_host(const QkNormForwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = detail::row_length(a.qkv);
  const std::int64_t d = detail::row_length(a.q_weight);
  const std::int64_t normed = a.heads + a.kv_heads;
  const detail::RowTable& table = detail::row_table();
  detail::for_runs(
      pool, detail::row_count(a.qkv), detail::rows_per_item(width), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const float* x = a.qkv.as<float>() + t * width;
          float* y = a.y.as<float>() + t * width;
          for (std::int64_t head = 0; head < normed; ++head)
            table.rmsnorm_forward(x + head * d, (head < a.heads ? a.q_weight : a.k_weight).as<float>(),
                                  y + head * d, a.rstd.as<float>() + t * normed + head, a.eps, d);
          if (x != y) std::copy(x + normed * d, x + width, y + normed * d);
        }
      });
}

void qk_norm_backward_host(const QkNormBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t width = detail::row_length(a.qkv);
  const std::int64_t d = detail::row_length(a.q_weight);
  const std::int64_t rows = detail::row_count(a.qkv);
  const std::int64_t normed = a.heads + a.kv_heads;
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);  // by block: of q, of k
  const detail::RowTable& table = detail::row_table();
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* partial = partials + block * 2 * d;
    std::fill_n(partial, 2 * d, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t) {
      const float* x = a.qkv.as<float>() + t * width;
      const float* dy = a.dy.as<float>() + t * width;
      float* dx = a.dx.as<float>() + t * width;
      for (std::int64_t head = 0; head < normed; ++head)
        table.rmsnorm_backward(x + head * d, (head < a.heads ? a.q_weight : a.k_weight).as<float>(),
                               a.rstd.as<float>()[t * normed + head], dy + head * d, dx + head * d,
                               partial + (head < a.heads ? 0 : d), d);
      if (dy != dx) std::copy(dy + normed * d, dy + width, dx + normed * d);
    }
  });
  detail::sum_partials(partials, blocks.count, 2 * d, d, a.dq_weight.as<float>(), a.accumulate_dq_weight,
                       pool);
  detail::sum_partials(partials + d, blocks.count, 2 * d, d, a.dk_weight.as<float>(), a.accumulate_dk_weight,
                       pool);
}

}  // namespace strata::kernels

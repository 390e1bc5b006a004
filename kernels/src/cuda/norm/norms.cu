#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/rmsnorm.h>

#include "cuda/partial_sums.cuh"
#include "cuda/row_math.h"
#include "work_split.h"

// A half warp per row. Sums over rows take one thread per column of a block of rows, then one thread per
// column of the blocks' partial sums.
namespace strata::kernels::cuda {
namespace {

using detail::RowBlocks;
using dispatch::dispatch_launch;
using dispatch::half_warp_index;
using dispatch::HalfWarp;
using dispatch::kRowsPerBlock;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

__device__ std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <class T>
__global__ void __launch_bounds__(kThreads)
    layernorm(const T* x, const T* added, T* sum, const T* weight, const T* bias, T* y, float* mean,
              float* rstd, float eps, std::int64_t rows, std::int64_t h) {
  const std::int64_t t = half_warp_index();
  if (t >= rows) return;
  const HalfWarp lanes;
  const T* row = x + t * h;
  if (added != nullptr) row = detail::fused_add_row(lanes, row, added + t * h, sum + t * h, h);
  detail::layernorm_row(lanes, row, weight, bias, y + t * h, mean + t, rstd + t, eps, h);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    layernorm_dx(const T* x, const T* weight, const float* mean, const float* rstd, const T* dy, T* dx,
                 const T* residual, std::int64_t rows, std::int64_t h) {
  const std::int64_t t = half_warp_index();
  if (t >= rows) return;
  detail::layernorm_row_backward(HalfWarp(), x + t * h, weight, mean[t], rstd[t], dy + t * h, dx + t * h,
                                 residual == nullptr ? nullptr : residual + t * h, h);
}

// blockIdx.y is a block of rows. Its partial sums are h values for the weight, then h for the bias.
template <class T>
__global__ void __launch_bounds__(kThreads)
    layernorm_columns(const T* x, const float* mean, const float* rstd, const T* dy, float* partials,
                      std::int64_t rows, std::int64_t rows_of_block, std::int64_t h) {
  const std::int64_t column = thread_index(), block = blockIdx.y;
  if (column >= h) return;
  const auto sum = detail::layernorm_column(x, mean, rstd, dy, column, block * rows_of_block,
                                            min(rows, (block + 1) * rows_of_block), h);
  partials[block * 2 * h + column] = sum.weight;
  partials[block * 2 * h + h + column] = sum.bias;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    rmsnorm(const T* x, const T* added, T* sum, const T* weight, T* y, float* rstd, float eps, float offset,
            std::int64_t rows, std::int64_t h) {
  const std::int64_t t = half_warp_index();
  if (t >= rows) return;
  const HalfWarp lanes;
  const T* row = x + t * h;
  if (added != nullptr) row = detail::fused_add_row(lanes, row, added + t * h, sum + t * h, h);
  detail::rmsnorm_row(lanes, row, weight, y + t * h, rstd + t, eps, h, offset);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    rmsnorm_dx(const T* x, const T* weight, const float* rstd, const T* dy, T* dx, const T* residual,
               float offset, std::int64_t rows, std::int64_t h) {
  const std::int64_t t = half_warp_index();
  if (t >= rows) return;
  detail::rmsnorm_row_backward(HalfWarp(), x + t * h, weight, rstd[t], dy + t * h, dx + t * h,
                               residual == nullptr ? nullptr : residual + t * h, h, offset);
}

/// The heads of a qkv row that share a weight: `count` heads of d elements, from element `at` and statistic
/// `first` on, in rows of `width` elements and `stats` statistics.
struct HeadGroup {
  std::int64_t first, at, count, d, width, stats;
};
/// The layout of a qkv row: `heads` query heads of n elements, then `kv_heads` key heads of m elements, and
/// as many value heads, which are not normalized.
struct QkvRowLayout {
  std::int64_t heads, kv_heads, n, m;
  STRATA_HD std::int64_t total_heads() const { return heads + 2 * kv_heads; }
  STRATA_HD std::int64_t normed_heads() const { return heads + kv_heads; }
  STRATA_HD std::int64_t width() const { return heads * n + 2 * kv_heads * m; }
  STRATA_HD std::int64_t at(std::int64_t head) const {
    return head < heads ? head * n : heads * n + (head - heads) * m;
  }
  STRATA_HD std::int64_t head_dim(std::int64_t head) const { return head < heads ? n : m; }
};
template <class Args>
QkvRowLayout qkv_row_layout(const Args& a) {
  return {a.heads, a.kv_heads, dispatch::row_length(a.q_weight), dispatch::row_length(a.k_weight)};
}

// The partial sums of consecutive blocks of rows are `stride` apart.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rmsnorm_columns(const T* x, const float* rstd, const T* dy, float* partials, std::int64_t stride,
                    std::int64_t rows, std::int64_t rows_of_block, HeadGroup heads) {
  const std::int64_t column = thread_index(), block = blockIdx.y;
  if (column >= heads.d) return;
  partials[block * stride + column] = detail::rmsnorm_column(
      x + heads.at, rstd + heads.first, dy + heads.at, column, heads.count, heads.d, heads.width, heads.stats,
      block * rows_of_block, min(rows, (block + 1) * rows_of_block));
}

// A half warp per head of a row: query heads, then key heads, then value heads, which are copied. With one
// thread block per multiprocessor as the minimum, the compiler takes the registers that it needs instead of
// spilling one.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    qk_norm(const T* x, const T* q_weight, const T* k_weight, T* y, float* rstd, float eps, float offset,
            std::int64_t rows, QkvRowLayout layout) {
  const std::int64_t i = half_warp_index();
  if (i >= rows * layout.total_heads()) return;
  const std::int64_t t = i / layout.total_heads(), head = i % layout.total_heads(),
                     at = t * layout.width() + layout.at(head);
  const HalfWarp lanes;
  if (head < layout.normed_heads())
    detail::rmsnorm_row(lanes, x + at, head < layout.heads ? q_weight : k_weight, y + at,
                        rstd + t * layout.normed_heads() + head, eps, layout.head_dim(head), offset);
  else if (x != y)
    lanes.for_each(layout.m, [&](std::int64_t e) { y[at + e] = x[at + e]; });
}
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    qk_norm_dx(const T* x, const T* q_weight, const T* k_weight, const float* rstd, const T* dy, T* dx,
               float offset, std::int64_t rows, QkvRowLayout layout) {
  const std::int64_t i = half_warp_index();
  if (i >= rows * layout.total_heads()) return;
  const std::int64_t t = i / layout.total_heads(), head = i % layout.total_heads(),
                     at = t * layout.width() + layout.at(head);
  const HalfWarp lanes;
  if (head < layout.normed_heads())
    detail::rmsnorm_row_backward(lanes, x + at, head < layout.heads ? q_weight : k_weight,
                                 rstd[t * layout.normed_heads() + head], dy + at, dx + at,
                                 static_cast<const T*>(nullptr), layout.head_dim(head), offset);
  else if (dy != dx)
    lanes.for_each(layout.m, [&](std::int64_t e) { dx[at + e] = dy[at + e]; });
}

template <class T>
__global__ void __launch_bounds__(kThreads) bias_columns(const T* dy, float* partials, std::int64_t rows,
                                                         std::int64_t rows_of_block, std::int64_t n) {
  const std::int64_t column = thread_index(), block = blockIdx.y;
  if (column >= n) return;
  partials[block * n + column] =
      detail::bias_column(dy, column, n, block * rows_of_block, min(rows, (block + 1) * rows_of_block));
}

dim3 columns_by_blocks(std::int64_t columns, const RowBlocks& blocks) {
  return {num_blocks(columns, kThreads), static_cast<unsigned>(blocks.count)};
}

}  // namespace

Status layernorm_forward(Backend&, Stream& stream, const LayernormForwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    layernorm<<<num_blocks(rows, kRowsPerBlock), kThreads, 0, queue>>>(
        a.x.as<T>(), a.added.as<T>(), a.sum.as<T>(), a.weight.as<T>(), a.bias.as<T>(), a.y.as<T>(),
        a.mean.as<float>(), a.rstd.as<float>(), a.eps, rows, h);
  });
}

// dx may be dy, so the kernel that reads all of dy comes first.
Status layernorm_backward(Backend&, Stream& stream, const LayernormBackwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  const RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      layernorm_columns<<<columns_by_blocks(h, blocks), kThreads, 0, queue>>>(
          a.x.as<T>(), a.mean.as<float>(), a.rstd.as<float>(), a.dy.as<T>(), partials, rows, blocks.rows, h);
      layernorm_dx<<<num_blocks(rows, kRowsPerBlock), kThreads, 0, queue>>>(
          a.x.as<T>(), a.weight.as<T>(), a.mean.as<float>(), a.rstd.as<float>(), a.dy.as<T>(), a.dx.as<T>(),
          a.residual.as<T>(), rows, h);
    }));
  STRATA_TRY(sum_partials(partials, blocks.count, 2 * h, a.dweight, a.accumulate_dweight, queue));
  return sum_partials(partials + h, blocks.count, 2 * h, a.dbias, a.accumulate_dbias, queue);
}

Status rmsnorm_forward(Backend&, Stream& stream, const RmsnormForwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    rmsnorm<<<num_blocks(rows, kRowsPerBlock), kThreads, 0, queue>>>(
        a.x.as<T>(), a.added.as<T>(), a.sum.as<T>(), a.weight.as<T>(), a.y.as<T>(), a.rstd.as<float>(), a.eps,
        a.offset, rows, h);
  });
}

Status rmsnorm_backward(Backend&, Stream& stream, const RmsnormBackwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  const RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      rmsnorm_columns<<<columns_by_blocks(h, blocks), kThreads, 0, queue>>>(
          a.x.as<T>(), a.rstd.as<float>(), a.dy.as<T>(), partials, h, rows, blocks.rows,
          HeadGroup{0, 0, 1, h, h, 1});
      rmsnorm_dx<<<num_blocks(rows, kRowsPerBlock), kThreads, 0, queue>>>(
          a.x.as<T>(), a.weight.as<T>(), a.rstd.as<float>(), a.dy.as<T>(), a.dx.as<T>(), a.residual.as<T>(),
          a.offset, rows, h);
    }));
  return sum_partials(partials, blocks.count, h, a.dweight, a.accumulate_dweight, queue);
}

Status qk_norm_forward(Backend&, Stream& stream, const QkNormForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const QkvRowLayout layout = qkv_row_layout(a);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    qk_norm<<<num_blocks(rows * layout.total_heads(), kRowsPerBlock), kThreads, 0, queue>>>(
        a.qkv.as<T>(), a.q_weight.as<T>(), a.k_weight.as<T>(), a.y.as<T>(), a.rstd.as<float>(), a.eps,
        a.offset, rows, layout);
  });
}

Status qk_norm_backward(Backend&, Stream& stream, const QkNormBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const QkvRowLayout layout = qkv_row_layout(a);
  const std::int64_t width = layout.width(), normed = layout.normed_heads(), both = layout.n + layout.m;
  const RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
      for (const HeadGroup& heads :
           {HeadGroup{0, 0, a.heads, layout.n, width, normed},
            HeadGroup{a.heads, layout.at(a.heads), a.kv_heads, layout.m, width, normed}})
        rmsnorm_columns<<<columns_by_blocks(heads.d, blocks), kThreads, 0, queue>>>(
            a.qkv.as<T>(), a.rstd.as<float>(), a.dy.as<T>(), partials + (heads.first > 0 ? layout.n : 0),
            both, rows, blocks.rows, heads);
      qk_norm_dx<<<num_blocks(rows * layout.total_heads(), kRowsPerBlock), kThreads, 0, queue>>>(
          a.qkv.as<T>(), a.q_weight.as<T>(), a.k_weight.as<T>(), a.rstd.as<float>(), a.dy.as<T>(),
          a.dx.as<T>(), a.offset, rows, layout);
    }));
  STRATA_TRY(sum_partials(partials, blocks.count, both, a.dq_weight, a.accumulate_dq_weight, queue));
  return sum_partials(partials + layout.n, blocks.count, both, a.dk_weight, a.accumulate_dk_weight, queue);
}

Status linear_backward_bias(Backend&, Stream& stream, const LinearBackwardBiasArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
      bias_columns<<<columns_by_blocks(n, blocks), kThreads, 0, queue>>>(a.dy.as<T>(), partials, rows,
                                                                         blocks.rows, n);
    }));
  return sum_partials(partials, blocks.count, n, a.db, a.accumulate, queue);
}

}  // namespace strata::kernels::cuda

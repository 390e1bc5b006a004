#include <limits>
#include <string>
#include <type_traits>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/rmsnorm.h>

#include "cuda/partial_sums.cuh"
#include "cuda/norm/head_columns.h"
#include "cuda/norm/norm_columns.h"
#include "cuda/norm/staged_norms.h"
#include "work_split.h"

// Rows are staged in shared memory (staged_norms.h). Where a row needs more of it than a block may have, a
// half warp reads the row from memory each time. Sums over rows take one thread per pack of columns of a
// block of rows, then one thread per column of the blocks' partial sums.
//
// dx and the sums over rows are two kernels: a column's sum takes the rows of its block in order, so a kernel
// with both would have a thread block for each block of rows, 64 at most, and leave half of a GPU idle.
namespace strata::kernels::cuda {
namespace {

using detail::HeadGroup;
using detail::NormBackward;
using detail::NormForward;
using detail::NormKind;
using detail::NormRows;
using detail::NormTile;
using detail::QkvRowLayout;
using detail::RowBlocks;
using dispatch::dispatch_launch;
using dispatch::half_warp_index;
using dispatch::HalfWarp;
using dispatch::kRowsPerBlock;
using dispatch::kThreads;
using dispatch::num_blocks;

__device__ std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <int kN, class Op>
__global__ void __launch_bounds__(detail::kNormThreads) staged_norm(Op op, NormTile tile) {
  extern __shared__ __align__(16) std::byte shared[];
  const detail::NormStage<Op> stage = {tile, reinterpret_cast<typename Op::Element*>(shared)};
  detail::norm_staged_rows<kN>(detail::NormBlock(), op, stage, std::int64_t{blockIdx.x} * tile.rows);
}
template <class Op>
__global__ void __launch_bounds__(kThreads, 1) norm_of_long_rows(Op op) {
  const std::int64_t i = half_warp_index();
  if (i < op.rows.count) detail::norm_row(HalfWarp(), op, i);
}

template <int kN, class Op>
Status launch_staged(const Op& op, const NormTile& tile, cudaStream_t queue) {
  constexpr std::size_t kAlwaysAllowed = 48 << 10;
  if (tile.bytes > kAlwaysAllowed)
    STRATA_CUDA_TRY(cudaFuncSetAttribute(staged_norm<kN, Op>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(tile.bytes)));
  staged_norm<kN>
      <<<num_blocks(op.rows.count, tile.rows), detail::kNormThreads, tile.bytes, queue>>>(op, tile);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}
/// `operands` are all tensors of rows or of a row's length that the op has; those that are null are ignored.
template <class Op, class... T>
Status launch_norm(const Op& op, cudaStream_t queue, const T*... operands) {
  constexpr int kSize = dispatch::Pack<typename Op::Element>::kSize;
  const auto& rows = op.rows;
  constexpr std::int64_t kMaxHeads = std::numeric_limits<std::int32_t>::max();
  if (Op::kKind == NormKind::qk_norm && rows.count > kMaxHeads)
    return Status::error(Code::unsupported, "qk_norm: a tensor has " + std::to_string(rows.count) +
                                                " heads, more than " + std::to_string(kMaxHeads));
  const bool have_one_length = Op::kKind != NormKind::qk_norm || rows.heads.n == rows.heads.m;
  const NormTile tile = have_one_length ? detail::norm_tile<Op>(rows.count, rows.length) : NormTile{};
  if (tile.rows > 0)
    return rows.length % kSize == 0 && dispatch::are_pack_aligned(operands...)
               ? launch_staged<kSize>(op, tile, queue)
               : launch_staged<1>(op, tile, queue);
  norm_of_long_rows<<<num_blocks(rows.count, kRowsPerBlock), kThreads, 0, queue>>>(op);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

/// The grid of sums over rows: x has the columns, kN of which a thread has, y the blocks of rows. Small
/// blocks of threads are spread evenly although there are few of them.
constexpr int kColumnThreads = 64;
dim3 columns_by_blocks(std::int64_t columns, int per_thread, const RowBlocks& blocks) {
  return {num_blocks(columns / per_thread, kColumnThreads), static_cast<unsigned>(blocks.count)};
}
template <int kN>
__device__ std::int64_t first_column() {
  return (std::int64_t{blockIdx.x} * kColumnThreads + threadIdx.x) * kN;
}
/// Calls launch(std::integral_constant of `per_thread`), or of 1 if the operands are not aligned to packs.
template <class T, class Launch, class... Operands>
void launch_columns(int per_thread, const Launch& launch, const Operands*... operands) {
  if (per_thread > 1 && dispatch::are_pack_aligned(operands...))
    launch(std::integral_constant<int, dispatch::Pack<T>::kSize>{});
  else
    launch(std::integral_constant<int, 1>{});
}

// blockIdx.y is a block of rows. Its partial sums are h values for the weight, then h for the bias.
template <int kN, class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_layernorm(const T* x, const float* mean, const float* rstd, const T* dy, float* partials,
                  std::int64_t rows, std::int64_t rows_of_block, std::int64_t h) {
  const std::int64_t column = first_column<kN>(), block = blockIdx.y;
  if (column >= h) return;
  float* const sums = partials + block * 2 * h + column;
  detail::layernorm_columns<kN>(x, mean, rstd, dy, column, block * rows_of_block,
                                min(rows, (block + 1) * rows_of_block), h, sums, sums + h);
}
// The partial sums of consecutive blocks of rows are `stride` apart.
template <int kN, class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_rmsnorm(const T* x, const float* rstd, const T* dy, float* partials, std::int64_t stride,
                std::int64_t rows, std::int64_t rows_of_block, HeadGroup heads) {
  const std::int64_t column = first_column<kN>(), block = blockIdx.y;
  if (column >= heads.d) return;
  detail::rmsnorm_columns<kN>(x, rstd, dy, heads, column, block * rows_of_block,
                              min(rows, (block + 1) * rows_of_block), partials + block * stride + column);
}
template <class T>
__global__ void __launch_bounds__(detail::kHeadColumns)
    sum_heads(const T* x, const float* rstd, const T* dy, float* partials, std::int64_t stride,
              std::int64_t rows, std::int64_t rows_of_block, HeadGroup heads) {
  __shared__ detail::HeadStage<T> stage;
  float sum;
  const std::int64_t block = blockIdx.y;
  detail::rmsnorm_head_columns(detail::HeadColumnsBlock(), x, rstd, dy, heads,
                               static_cast<int>(blockIdx.x) * detail::kHeadColumns, block * rows_of_block,
                               min(rows, (block + 1) * rows_of_block), partials + block * stride, stage, sum);
}
template <int kN, class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_bias(const T* dy, float* partials, std::int64_t rows, std::int64_t rows_of_block, std::int64_t n) {
  const std::int64_t column = first_column<kN>(), block = blockIdx.y;
  if (column >= n) return;
  detail::bias_columns<kN>(dy, column, n, block * rows_of_block, min(rows, (block + 1) * rows_of_block),
                           partials + block * n + column);
}

template <class T, class Args>
NormRows<T, NormKind::qk_norm> qk_rows(const Args& a) {
  const QkvRowLayout heads = {a.heads, a.kv_heads, dispatch::row_length(a.q_weight),
                              dispatch::row_length(a.k_weight), a.values};
  return {a.q_weight.template as<T>(), dispatch::row_count(a.qkv) * heads.total_heads(), heads.n,
          a.k_weight.template as<T>(), heads};
}

}  // namespace

Status layernorm_forward(Backend&, Stream& stream, const LayernormForwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const NormForward<T, NormKind::layernorm> op = {.rows = {a.weight.as<T>(), rows, h},
                                                    .x = a.x.as<T>(),
                                                    .y = a.y.as<T>(),
                                                    .rstd = a.rstd.as<float>(),
                                                    .eps = a.eps,
                                                    .mean = a.mean.as<float>(),
                                                    .bias = a.bias.as<T>(),
                                                    .added = a.added.as<T>(),
                                                    .sum = a.sum.as<T>()};
    return launch_norm(op, queue, op.rows.weight, op.x, op.y, op.bias, op.added, op.sum);
  });
}

// dx may be dy, so the kernel that reads all of dy comes first.
Status layernorm_backward(Backend&, Stream& stream, const LayernormBackwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  const RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0) {
    STRATA_TRY(dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      const T *const x = a.x.as<T>(), *const dy = a.dy.as<T>();
      launch_columns<T>(
          detail::columns_of_thread<T>(h, h),
          [&](auto n) {
            sum_layernorm<n()><<<columns_by_blocks(h, n(), blocks), kColumnThreads, 0, queue>>>(
                x, a.mean.as<float>(), a.rstd.as<float>(), dy, partials, rows, blocks.rows, h);
          },
          x, dy);
    }));
    STRATA_TRY(dispatch::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      const NormBackward<T, NormKind::layernorm> op = {.rows = {a.weight.as<T>(), rows, h},
                                                       .x = a.x.as<T>(),
                                                       .dy = a.dy.as<T>(),
                                                       .dx = a.dx.as<T>(),
                                                       .rstd = a.rstd.as<float>(),
                                                       .mean = a.mean.as<float>(),
                                                       .residual = a.residual.as<T>()};
      return launch_norm(op, queue, op.rows.weight, op.x, op.dy, op.dx, op.residual);
    }));
  }
  STRATA_TRY(sum_partials(partials, blocks.count, 2 * h, a.dweight, a.accumulate_dweight, queue));
  return sum_partials(partials + h, blocks.count, 2 * h, a.dbias, a.accumulate_dbias, queue);
}

Status rmsnorm_forward(Backend&, Stream& stream, const RmsnormForwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const NormForward<T, NormKind::rmsnorm> op = {.rows = {a.weight.as<T>(), rows, h},
                                                  .x = a.x.as<T>(),
                                                  .y = a.y.as<T>(),
                                                  .rstd = a.rstd.as<float>(),
                                                  .eps = a.eps,
                                                  .offset = a.offset,
                                                  .added = a.added.as<T>(),
                                                  .sum = a.sum.as<T>()};
    return launch_norm(op, queue, op.rows.weight, op.x, op.y, op.added, op.sum);
  });
}

template <class T>
void launch_rmsnorm_columns(const T* x, const float* rstd, const T* dy, float* partials, std::int64_t stride,
                            std::int64_t rows, const HeadGroup& heads, cudaStream_t queue) {
  const RowBlocks blocks = detail::row_blocks(rows);
  if (detail::stages_heads<T>(heads, blocks.rows) &&
      dispatch::are_pack_aligned(x + heads.at, dy + heads.at)) {
    const dim3 grid(num_blocks(heads.d, detail::kHeadColumns), static_cast<unsigned>(blocks.count));
    sum_heads<<<grid, detail::kHeadColumns, 0, queue>>>(x, rstd, dy, partials, stride, rows, blocks.rows,
                                                        heads);
    return;
  }
  launch_columns<T>(
      detail::columns_of_thread<T>(heads),
      [&](auto n) {
        sum_rmsnorm<n()><<<columns_by_blocks(heads.d, n(), blocks), kColumnThreads, 0, queue>>>(
            x, rstd, dy, partials, stride, rows, blocks.rows, heads);
      },
      x + heads.at, dy + heads.at);
}

Status rmsnorm_backward(Backend&, Stream& stream, const RmsnormBackwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.x), rows = dispatch::row_count(a.x);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0) {
    STRATA_TRY(dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      launch_rmsnorm_columns(a.x.as<T>(), a.rstd.as<float>(), a.dy.as<T>(), partials, h, rows,
                             HeadGroup{0, 0, 1, h, h, 1}, queue);
    }));
    STRATA_TRY(dispatch::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      const NormBackward<T, NormKind::rmsnorm> op = {.rows = {a.weight.as<T>(), rows, h},
                                                     .x = a.x.as<T>(),
                                                     .dy = a.dy.as<T>(),
                                                     .dx = a.dx.as<T>(),
                                                     .rstd = a.rstd.as<float>(),
                                                     .offset = a.offset,
                                                     .residual = a.residual.as<T>()};
      return launch_norm(op, queue, op.rows.weight, op.x, op.dy, op.dx, op.residual);
    }));
  }
  return sum_partials(partials, detail::row_blocks(rows).count, h, a.dweight, a.accumulate_dweight, queue);
}

Status qk_norm_forward(Backend&, Stream& stream, const QkNormForwardArgs& a) {
  if (dispatch::row_count(a.qkv) == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const NormForward<T, NormKind::qk_norm> op = {.rows = qk_rows<T>(a),
                                                  .x = a.qkv.as<T>(),
                                                  .y = a.y.as<T>(),
                                                  .rstd = a.rstd.as<float>(),
                                                  .eps = a.eps,
                                                  .offset = a.offset};
    return launch_norm(op, queue, op.rows.weight, op.rows.k_weight, op.x, op.y);
  });
}

Status qk_norm_backward(Backend&, Stream& stream, const QkNormBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv), n = dispatch::row_length(a.q_weight),
                     m = dispatch::row_length(a.k_weight), blocks = detail::row_blocks(rows).count;
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0) {
    STRATA_TRY(dispatch_launch(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
      const QkvRowLayout layout = qk_rows<T>(a).heads;
      const std::int64_t width = layout.width(), stats = layout.normed_heads();
      for (const HeadGroup& heads : {HeadGroup{0, 0, a.heads, n, width, stats},
                                     HeadGroup{a.heads, layout.at(a.heads), a.kv_heads, m, width, stats}})
        launch_rmsnorm_columns(a.qkv.as<T>(), a.rstd.as<float>(), a.dy.as<T>(),
                               partials + (heads.first > 0 ? n : 0), n + m, rows, heads, queue);
    }));
    STRATA_TRY(dispatch::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
      const NormBackward<T, NormKind::qk_norm> op = {.rows = qk_rows<T>(a),
                                                     .x = a.qkv.as<T>(),
                                                     .dy = a.dy.as<T>(),
                                                     .dx = a.dx.as<T>(),
                                                     .rstd = a.rstd.as<float>(),
                                                     .offset = a.offset};
      return launch_norm(op, queue, op.rows.weight, op.rows.k_weight, op.x, op.dy, op.dx);
    }));
  }
  STRATA_TRY(sum_partials(partials, blocks, n + m, a.dq_weight, a.accumulate_dq_weight, queue));
  return sum_partials(partials + n, blocks, n + m, a.dk_weight, a.accumulate_dk_weight, queue);
}

Status linear_backward_bias(Backend&, Stream& stream, const LinearBackwardBiasArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const RowBlocks blocks = detail::row_blocks(rows);
  auto* partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
      const T* const dy = a.dy.as<T>();
      launch_columns<T>(
          detail::columns_of_thread<T>(n, n),
          [&](auto per_thread) {
            sum_bias<per_thread()><<<columns_by_blocks(n, per_thread(), blocks), kColumnThreads, 0, queue>>>(
                dy, partials, rows, blocks.rows, n);
          },
          dy);
    }));
  return sum_partials(partials, blocks.count, n, a.db, a.accumulate, queue);
}

}  // namespace strata::kernels::cuda

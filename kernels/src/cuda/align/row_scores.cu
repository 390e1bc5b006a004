#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/align/row_scores.h>

#include "cuda/align/row_score_math.h"
#include "cuda/partial_sums.cuh"
#include "cuda/row_math.h"
#include "work_split.h"

// A half warp per row. Sums over rows take one thread per column of a block of rows, then one thread per
// column of the blocks' partial sums; the bias is one more column.
namespace strata::kernels::cuda {
namespace {

using dispatch::half_warp_index;
using dispatch::HalfWarp;
using dispatch::kRowsPerBlock;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

template <class T>
__global__ void __launch_bounds__(kThreads)
    scores(const T* x, const T* weight, const T* bias, float* out, std::int64_t rows, std::int64_t k) {
  const std::int64_t t = half_warp_index();
  if (t >= rows) return;
  const HalfWarp lanes;
  const float score = detail::row_score(lanes, x + t * k, weight, bias, k);
  if (lanes.is_leader()) out[t] = score;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scores_dx(const T* weight, const float* dscores, T* dx, std::int64_t elems, std::int64_t k) {
  if (const std::int64_t i = thread_index(); i < elems)
    dx[i] = detail::stored_scale(weight[i % k], dscores[i / k]);
}

// blockIdx.y is a block of rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    score_columns(const T* x, const float* dscores, float* partials, std::int64_t rows,
                  std::int64_t rows_of_block, std::int64_t k) {
  const std::int64_t column = thread_index(), block = blockIdx.y;
  if (column > k) return;
  const std::int64_t end = (block + 1) * rows_of_block;
  partials[block * (k + 1) + column] =
      detail::score_column(x, dscores, column, k, block * rows_of_block, end < rows ? end : rows);
}

}  // namespace

Status row_scores(Backend&, Stream& stream, const RowScoresArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const T* const bias = dispatch::is_present(a.bias) ? a.bias.as<T>() : nullptr;
    scores<<<num_blocks(rows, kRowsPerBlock), kThreads, 0, queue>>>(a.x.as<T>(), a.weight.as<T>(), bias,
                                                                    a.scores.as<float>(), rows, k);
  });
}

Status row_scores_backward(Backend&, Stream& stream, const RowScoresBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0 && k > 0)
    STRATA_TRY(dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      const dim3 grid(num_blocks(k + 1, kThreads), static_cast<unsigned>(blocks.count));
      score_columns<<<grid, kThreads, 0, queue>>>(a.x.as<T>(), a.dscores.as<float>(), partials, rows,
                                                  blocks.rows, k);
      scores_dx<<<num_blocks(rows * k, kThreads), kThreads, 0, queue>>>(
          a.weight.as<T>(), a.dscores.as<float>(), a.dx.as<T>(), rows * k, k);
    }));
  STRATA_TRY(sum_partials(partials, blocks.count, k + 1, a.dweight, a.accumulate_dweight, queue));
  if (!dispatch::is_present(a.dbias)) return Status::ok();
  return sum_partials(partials + k, blocks.count, k + 1, a.dbias, a.accumulate_dbias, queue);
}

}  // namespace strata::kernels::cuda

#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/dora.h>

#include "cuda/partial_sums.cuh"
#include "elementwise/part_columns.h"
#include "work_split.h"

// One thread per element. Sums over rows take one thread per adapted column of a block of rows, then one per
// column of the blocks' partial sums.
namespace strata::kernels::cuda {
namespace {

using detail::PartColumns;
using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

template <class T>
__global__ void __launch_bounds__(kThreads)
    scaled_columns(const T* x, const float* m, const float* norm, const T* bias, T* y, PartColumns columns,
                   std::int64_t elems, std::int64_t n) {
  const std::int64_t i = thread_index();
  if (i < elems) y[i] = detail::scaled_column(columns, x[i], i % n, m, norm, bias);
}

// blockIdx.y is a block of rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    product_columns(const T* dy, const T* x, const float* norm, float* partials, PartColumns columns,
                    std::int64_t rows, std::int64_t rows_of_block, std::int64_t n) {
  const std::int64_t i = thread_index(), block = blockIdx.y;
  if (i >= columns.rows) return;
  const std::int64_t end = (block + 1) * rows_of_block;
  const float sum =
      detail::product_column(dy, x, columns.column_of(i), n, block * rows_of_block, end < rows ? end : rows);
  partials[block * columns.rows + i] = detail::over_norm(sum, norm[i]);
}

}  // namespace

Status scale_columns(Backend&, Stream& stream, const ScaleColumnsArgs& a) {
  const std::int64_t elems = a.x.n_elems();
  if (elems == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const T* const bias = dispatch::is_present(a.bias) ? a.bias.as<T>() : nullptr;
    scaled_columns<<<num_blocks(elems, kThreads), kThreads, 0, queue>>>(
        a.x.as<T>(), a.m.as<float>(), a.norm.as<float>(), bias, a.y.as<T>(), detail::part_columns(a.parts),
        elems, dispatch::row_length(a.x));
  });
}

Status scale_columns_backward_weight(Backend&, Stream& stream, const ScaleColumnsBackwardWeightArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  const PartColumns columns = detail::part_columns(a.parts);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
      const dim3 grid(num_blocks(columns.rows, kThreads), static_cast<unsigned>(blocks.count));
      product_columns<<<grid, kThreads, 0, queue>>>(a.dy.as<T>(), a.x.as<T>(), a.norm.as<float>(), partials,
                                                    columns, rows, blocks.rows, dispatch::row_length(a.dy));
    }));
  return sum_partials(partials, blocks.count, columns.rows, a.dm, a.accumulate, queue);
}

}  // namespace strata::kernels::cuda

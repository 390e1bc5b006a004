#include "cuda/gemm/dora_norm.h"

#include <strata/dispatch/cuda/launch.h>

// A half warp per row.
namespace strata::kernels::detail {
namespace {

using dispatch::dispatch_launch;
using dispatch::half_warp_index;
using dispatch::HalfWarp;
using dispatch::kRowsPerBlock;
using dispatch::kThreads;
using dispatch::num_blocks;

template <class T>
__global__ void __launch_bounds__(kThreads) adapted_norms(DoraRows rows) {
  const std::int64_t row = half_warp_index();
  if (row >= rows.rows) return;
  const HalfWarp lanes;
  const double squares = square_sum(lanes, static_cast<const T*>(rows.w) + row * rows.columns, rows.columns);
  write_norm<HalfWarp, T>(lanes, rows, row, squares, added_squares<HalfWarp, T>(lanes, rows, row));
}

}  // namespace

Status launch_write_norms(const DoraRows& rows, DType dtype, cudaStream_t queue) {
  return dispatch_launch(dtype, [&]<class T>(std::type_identity<T>) {
    adapted_norms<T><<<num_blocks(rows.rows, kRowsPerBlock), kThreads, 0, queue>>>(rows);
  });
}

}  // namespace strata::kernels::detail

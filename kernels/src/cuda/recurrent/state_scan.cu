#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/state_scan.h>

#include "cuda/partial_sums.cuh"
#include "cuda/recurrent/delta_unit.h"
#include "cuda/thread_block.h"
#include "recurrent/scan_operands.h"

// A block of threads for each slot of the workspace, which takes the chunks of its pairs one after the other.
// The sums over blocks of heads, and over rows, are kernels of their own.
namespace strata::kernels::cuda {
namespace {

using detail::kDeltaThreads;
using dispatch::kThreads;
using Block = detail::DeltaBlock<detail::BlockThreads, dispatch::HalfWarp, false>;

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) run_scan_forward(detail::ScanForwardOperands<T> a) {
  detail::forward_slot(Block(), a, blockIdx.x, gridDim.x);
}
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) run_scan_backward(detail::ScanBackwardOperands<T> a) {
  detail::backward_slot(Block(), a, blockIdx.x, gridDim.x);
}
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) run_scan_cached(detail::ScanCachedOperands<T> a) {
  detail::cached_slot(Block(), a, blockIdx.x, gridDim.x);
}

/// The grid has columns of B and C in x, and rows in y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_key_gradients(detail::ScanBackwardOperands<T> a, std::int64_t rows) {
  const std::int64_t c = dispatch::thread_index(), of_part = a.of.keys_width();
  if (c >= 2 * of_part) return;
  const std::int64_t part = c / of_part, group = c % of_part / a.of.d.dk, i = c % of_part % a.of.d.dk;
  for (std::int64_t t = blockIdx.y; t < rows; t += gridDim.y)
    a.dxbc[t * a.of.width() + a.key_column(part, group, i)] = from_f32<T>(a.key_gradient(t, part, group, i));
}
/// The grid has heads in x, and blocks of rows in y.
__global__ void __launch_bounds__(kThreads) sum_dots(const float* dots, float* partials, std::int64_t rows,
                                                     std::int64_t rows_of_block, std::int64_t heads) {
  const std::int64_t h = dispatch::thread_index(), block = blockIdx.y;
  if (h >= heads) return;
  const std::int64_t first = block * rows_of_block,
                     last = first + rows_of_block < rows ? first + rows_of_block : rows;
  float sum = 0.0f;
  for (std::int64_t t = first; t < last; ++t) sum = sum + dots[t * heads + h];
  partials[block * heads + h] = sum;
}

unsigned scan_slots_of(std::int64_t pairs) { return static_cast<unsigned>(detail::delta_slots(pairs)); }

}  // namespace

Status state_scan_forward(Backend&, Stream& stream, const StateScanForwardArgs& a) {
  if (a.xbc.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.xbc.dtype, [&]<class T>(std::type_identity<T>) {
    const auto of = detail::scan_forward_operands<T>(a);
    run_scan_forward<<<scan_slots_of(of.of.pairs), kDeltaThreads, 0, queue>>>(of);
  });
}
Status state_scan_backward(Backend&, Stream& stream, const StateScanBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.xbc), heads = a.heads.heads;
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const detail::ScanBackwardSpace space = detail::scan_backward_space(rows, a.heads);
  float* const dots = reinterpret_cast<float*>(a.workspace.data) + space.slots + space.keys;
  float* const partials = dots + space.dots;
  if (rows > 0) {
    STRATA_TRY(dispatch::dispatch_launch(a.xbc.dtype, [&]<class T>(std::type_identity<T>) {
      const auto of = detail::scan_backward_operands<T>(a);
      run_scan_backward<<<scan_slots_of(of.of.pairs), kDeltaThreads, 0, queue>>>(of);
      sum_key_gradients<<<dispatch::row_grid(rows, 2 * of.of.keys_width()), kThreads, 0, queue>>>(of, rows);
      const dim3 by_blocks = {dispatch::num_blocks(heads, kThreads), static_cast<unsigned>(blocks.count)};
      sum_dots<<<by_blocks, kThreads, 0, queue>>>(dots, partials, rows, blocks.rows, heads);
    }));
  }
  return sum_partials(partials, blocks.count, heads, a.dd, a.accumulate_dd, queue);
}
Status cached_state_scan(Backend&, Stream& stream, const CachedStateScanArgs& a) {
  if (a.xbc.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.xbc.dtype, [&]<class T>(std::type_identity<T>) {
    const auto of = detail::scan_cached_operands<T>(a);
    run_scan_cached<<<scan_slots_of(of.of.pairs), kDeltaThreads, 0, queue>>>(of);
  });
}

}  // namespace strata::kernels::cuda

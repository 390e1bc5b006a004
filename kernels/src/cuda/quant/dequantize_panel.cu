#include "cuda/quant/dequantize_panel.h"

#include <algorithm>

#include <strata/dispatch/cuda/launch.h>

// A thread dequantizes eight values of a row.
namespace strata::kernels::detail {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

__constant__ Nf4Levels nf4 = nf4_levels();

/// `kWide`: with vector loads and stores, where every run of a row is one of whole runs of its block.
template <bool kWide, class T>
__global__ void __launch_bounds__(kThreads) dequantize(PanelRows panel, std::int64_t runs, T* out) {
  __shared__ float levels[16];  // each level in its own bank, so there are no bank conflicts
  if (threadIdx.x < 16) levels[threadIdx.x] = nf4.of[threadIdx.x];
  __syncthreads();
  const std::int64_t row = thread_index() / runs, column = thread_index() % runs * kDequantizedRun;
  if (row >= panel.rows) return;
  const std::int64_t first = panel.first + row * panel.stride + column, left = panel.columns - column;
  out += row * panel.columns + column;
  if constexpr (kWide)
    dequantize_run(panel.part, first, levels, out);
  else
    dequantize_values(panel.part, first, left < kDequantizedRun ? left : std::int64_t{kDequantizedRun},
                      levels, out);
}

}  // namespace

Status launch_dequantize(const PanelRows& panel, DType dtype, void* out, cudaStream_t queue) {
  const std::int64_t runs = (panel.columns + kDequantizedRun - 1) / kDequantizedRun;
  const bool wide = panel.columns % kDequantizedRun == 0 && panel.first % kDequantizedRun == 0 &&
                    panel.stride % kDequantizedRun == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  return dispatch_launch(dtype, [&]<class T>(std::type_identity<T>) {
    const auto kernel = wide ? dequantize<true, T> : dequantize<false, T>;
    kernel<<<num_blocks(panel.rows * runs, kThreads), kThreads, 0, queue>>>(panel, runs,
                                                                            static_cast<T*>(out));
  });
}

Status launch_dequantize_panel(const QuantizedMatrix& matrix, const std::byte* bytes, const Panel& panel,
                               DType dtype, std::byte* out, cudaStream_t queue) {
  for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
    const QuantizedPart part = matrix.part(i);
    const std::int64_t begin = std::max(panel.row, part.first_row),
                       end = std::min(panel.row + panel.rows, part.first_row + part.rows);
    if (begin >= end) continue;
    const std::int64_t at = (begin - panel.row) * panel.columns * static_cast<std::int64_t>(size_of(dtype));
    STRATA_TRY(launch_dequantize(
        {data_of(matrix, i, bytes), (begin - part.first_row) * matrix.columns + panel.column, matrix.columns,
         end - begin, panel.columns},
        dtype, out + at, queue));
  }
  return {};
}

}  // namespace strata::kernels::detail

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

struct AllLevels {
  CodeLevels nf4 = code_levels(ValueType::nf4), e2m1 = code_levels(ValueType::e2m1),
             int4 = code_levels(ValueType::int4);
};
__constant__ AllLevels all_levels = {};

__device__ __forceinline__ const float* levels_of_type(ValueType type) {
  return type == ValueType::e2m1   ? all_levels.e2m1.of
         : type == ValueType::int4 ? all_levels.int4.of
                                   : all_levels.nf4.of;
}

/// `kWide`: with vector loads and stores, where every run of a row is one of whole runs of its block.
template <bool kWide, class T>
__device__ __forceinline__ void dequantize_thread(const PanelRows& panel, std::int64_t runs, T* out) {
  __shared__ float levels[16];  // each level in its own bank, so there are no bank conflicts
  if (threadIdx.x < 16) levels[threadIdx.x] = levels_of_type(panel.part.value_type)[threadIdx.x];
  __syncthreads();
  const std::int64_t row = thread_index() / runs, column = thread_index() % runs * kDequantizedRun;
  if (row >= panel.rows) return;
  const ValuePlace place = place_of(panel.part, panel.row + row, panel.column + column);
  const std::int64_t left = panel.columns - column;
  out += row * panel.columns + column;
  if constexpr (kWide)
    dequantize_run(panel.part, place, levels, out);
  else
    dequantize_values(panel.part, place, left < kDequantizedRun ? left : std::int64_t{kDequantizedRun},
                      levels, out);
}
template <bool kWide, class T>
__global__ void __launch_bounds__(kThreads) dequantize(PanelRows panel, std::int64_t runs, T* out) {
  dequantize_thread<kWide>(panel, runs, out);
}
/// The same for the matrices of experts, which are `bytes` apart, and `elems` dequantized: a row of blocks
/// for each, which ends at once if the expert has no rows.
template <bool kWide, class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_experts(PanelRows panel, std::int64_t runs, ExpertOffsets experts, std::int64_t bytes,
                       std::int64_t elems, T* out) {
  const std::int64_t e = blockIdx.y;
  if (experts.begin(e) >= experts.begin(e + 1)) return;
  panel.part = part_behind(panel.part, e * bytes);
  dequantize_thread<kWide>(panel, runs, out + e * elems);
}

/// Whether every run of the rows begins at a multiple of a run's codes, and ends within the row.
bool has_whole_runs(const PanelRows& panel) {
  const std::int64_t stride = panel.part.by_rows ? panel.part.line_codes : panel.part.columns;
  return panel.columns % kDequantizedRun == 0 && stride % kDequantizedRun == 0 &&
         code_of(panel.part, place_of(panel.part, panel.row, panel.column)) % kDequantizedRun == 0;
}

Status launch_dequantize(const PanelRows& panel, DType dtype, void* out, cudaStream_t queue) {
  const std::int64_t runs = (panel.columns + kDequantizedRun - 1) / kDequantizedRun;
  const bool wide = has_whole_runs(panel) && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  return dispatch_launch(dtype, [&]<class T>(std::type_identity<T>) {
    const auto kernel = wide ? dequantize<true, T> : dequantize<false, T>;
    kernel<<<num_blocks(panel.rows * runs, kThreads), kThreads, 0, queue>>>(panel, runs,
                                                                            static_cast<T*>(out));
  });
}

Status launch_experts(const PanelRows& panel, const ExpertOffsets& experts, const QuantizedMatrix& matrix,
                      DType dtype, void* out, cudaStream_t queue) {
  const std::int64_t runs = (panel.columns + kDequantizedRun - 1) / kDequantizedRun;
  const bool wide = has_whole_runs(panel) && reinterpret_cast<std::uintptr_t>(out) % 16 == 0 &&
                    matrix.matrix_elems() % kDequantizedRun == 0;
  const dim3 grid = {num_blocks(panel.rows * runs, kThreads), static_cast<unsigned>(experts.experts)};
  return dispatch_launch(dtype, [&]<class T>(std::type_identity<T>) {
    const auto kernel = wide ? dequantize_experts<true, T> : dequantize_experts<false, T>;
    kernel<<<grid, kThreads, 0, queue>>>(panel, runs, experts, matrix.matrix_bytes(), matrix.matrix_elems(),
                                         static_cast<T*>(out));
  });
}

}  // namespace

Status launch_dequantize_experts(const QuantizedMatrix& matrix, const std::byte* bytes,
                                 const ExpertOffsets& experts, DType dtype, std::byte* out,
                                 cudaStream_t queue) {
  for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
    const QuantizedPart part = matrix.part(i);
    const std::int64_t at = part.first_row * matrix.columns * static_cast<std::int64_t>(size_of(dtype));
    STRATA_TRY(launch_experts({data_of(matrix, part, bytes), 0, 0, part.rows, matrix.columns}, experts,
                              matrix, dtype, out + at, queue));
  }
  return {};
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
        {data_of(matrix, part, bytes), begin - part.first_row, panel.column, end - begin, panel.columns},
        dtype, out + at, queue));
  }
  return {};
}

}  // namespace strata::kernels::detail

#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/rows.h>

#include "cuda/experts/route_sort.h"
#include "cuda/experts/row_parts.h"
#include "cuda/thread_block.h"

namespace strata::kernels::cuda {
namespace {

using detail::BlockThreads;
using detail::RouteShared;
using detail::RouteView;
using dispatch::kThreads;
using dispatch::row_grid;

constexpr int kSumThreads = detail::kMostExperts;

__global__ void __launch_bounds__(kThreads) count_runs(RouteView v) {
  __shared__ RouteShared<kThreads> memory;
  detail::count_run(BlockThreads(), memory, v, blockIdx.x);
}
__global__ void __launch_bounds__(kSumThreads) sum_all_runs(RouteView v) {
  __shared__ RouteShared<kSumThreads> memory;
  detail::sum_runs(BlockThreads(), memory, v);
}
__global__ void __launch_bounds__(kThreads) place_runs(RouteView v) {
  __shared__ RouteShared<kThreads> memory;
  detail::place_run(BlockThreads(), memory, v, blockIdx.x);
}

// The grid has the parts of a row in x, and rows in y, of which a block has several if there are many.
template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    gather(const T* x, const std::int32_t* source, T* into, int rows, int chosen, int h) {
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kN;
  if (first >= h) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y))
    detail::store_part<kN>(into + std::int64_t{row} * h + first,
                           detail::load_part<kN>(x + std::int64_t{source[row] / chosen} * h + first));
}
template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    sum(const T* rows, const std::int32_t* position, const T* base, T* y, int tokens, int chosen, int h) {
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kN;
  if (first >= h) return;
  for (int t = static_cast<int>(blockIdx.y); t < tokens; t += static_cast<int>(gridDim.y)) {
    const std::int64_t at = std::int64_t{t} * h;
    detail::sum_part<kN>(rows, position + std::int64_t{t} * chosen, chosen,
                         base != nullptr ? base + at : nullptr, y + at, h, first);
  }
}

}  // namespace

Status route_rows(Backend&, Stream& stream, const RouteRowsArgs& a) {
  const std::int64_t choices = a.experts.n_elems();
  const RouteView v = {.chosen = a.experts.as<std::int32_t>(),
                       .offsets = a.offsets.as<std::int32_t>(),
                       .source = a.source.as<std::int32_t>(),
                       .position = a.position.as<std::int32_t>(),
                       .choices = choices,
                       .experts = a.offsets.n_elems() - 1,
                       .runs = detail::route_runs(choices)};
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const auto blocks = static_cast<unsigned>(v.runs);
  count_runs<<<blocks, kThreads, 0, queue>>>(v);
  STRATA_CUDA_TRY(cudaGetLastError());
  sum_all_runs<<<1, kSumThreads, 0, queue>>>(v);
  STRATA_CUDA_TRY(cudaGetLastError());
  place_runs<<<blocks, kThreads, 0, queue>>>(v);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status gather_rows(Backend&, Stream& stream, const GatherRowsArgs& a) {
  if (a.rows.n_elems() == 0) return Status::ok();
  const auto rows = static_cast<int>(dispatch::row_count(a.rows)),
             h = static_cast<int>(dispatch::row_length(a.rows)),
             chosen = rows / static_cast<int>(dispatch::row_count(a.x));
  const auto* const source = a.source.as<std::int32_t>();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kSize = detail::Pack<T>::kSize;
    const T* const from = a.x.as<T>();
    T* const into = a.rows.as<T>();
    if (h % kSize == 0 && dispatch::are_pack_aligned(from, into))
      gather<kSize><<<row_grid(rows, h / kSize), kThreads, 0, queue>>>(from, source, into, rows, chosen, h);
    else
      gather<1><<<row_grid(rows, h), kThreads, 0, queue>>>(from, source, into, rows, chosen, h);
  });
}

Status sum_rows(Backend&, Stream& stream, const SumRowsArgs& a) {
  if (a.y.n_elems() == 0) return Status::ok();
  const auto tokens = static_cast<int>(dispatch::row_count(a.y)),
             h = static_cast<int>(dispatch::row_length(a.y)),
             chosen = static_cast<int>(dispatch::row_count(a.rows)) / tokens;
  const auto* const position = a.position.as<std::int32_t>();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.rows.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kSize = detail::Pack<T>::kSize;
    const T *const rows = a.rows.as<T>(), *const base =
                                              dispatch::is_present(a.base) ? a.base.as<T>() : nullptr;
    T* const y = a.y.as<T>();
    if (h % kSize == 0 && dispatch::are_pack_aligned(rows, base, y))
      sum<kSize>
          <<<row_grid(tokens, h / kSize), kThreads, 0, queue>>>(rows, position, base, y, tokens, chosen, h);
    else
      sum<1><<<row_grid(tokens, h), kThreads, 0, queue>>>(rows, position, base, y, tokens, chosen, h);
  });
}

}  // namespace strata::kernels::cuda

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/lora_rows.h>

#include "cuda/gemm/lora_rows_math.h"

// A half warp computes an element of u, and then a thread an element of y.
namespace strata::kernels::cuda {
namespace {

using detail::LoraRowsView;
using dispatch::HalfWarp;
using dispatch::kRowsPerBlock;
using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads) down(LoraRowsView<T> v) {
  if (const std::int64_t item = dispatch::half_warp_index(); item < v.rows * v.ranks)
    detail::lora_down(HalfWarp(), v, item);
}
template <class T>
__global__ void __launch_bounds__(kThreads) up(LoraRowsView<T> v) {
  const std::int64_t item = dispatch::thread_index();
  if (item < v.rows * v.part_rows) detail::lora_up_element(v, item);
}

template <class T>
LoraRowsView<T> view_of(const LoraRowsArgs& a) {
  return {.x = a.x.as<T>(),
          .a = a.a.as<T>(),
          .b = a.b.as<T>(),
          .adapters = a.adapters.as<std::int32_t>(),
          .y = a.y.as<T>(),
          .u = reinterpret_cast<float*>(a.workspace.data),
          .rows = dispatch::row_count(a.base),
          .columns = dispatch::row_length(a.base),
          .inner = dispatch::row_length(a.x),
          .ranks = a.a.shape.dim(0),
          .scale = a.scale,
          .adapter = a.adapter};
}

}  // namespace

Status lora_rows(Backend&, Stream& stream, const LoraRowsArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (dispatch::row_count(a.base) == 0) return Status::ok();
  if (a.y.data != a.base.data)
    STRATA_CUDA_TRY(cudaMemcpyAsync(a.y.data, a.base.data, a.y.bytes(), cudaMemcpyDeviceToDevice, queue));
  return dispatch::dispatch_dtype(a.base.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    LoraRowsView<T> v = view_of<T>(a);
    down<T><<<dispatch::num_blocks(v.rows * v.ranks, kRowsPerBlock), kThreads, 0, queue>>>(v);
    STRATA_CUDA_TRY(cudaGetLastError());
    for (const LoraPart& part : a.parts.all()) {
      v.first_row = part.first_row;
      v.part_rows = part.rows;
      v.rank = part.rank;
      up<T><<<dispatch::num_blocks(v.rows * part.rows, kThreads), kThreads, 0, queue>>>(v);
      STRATA_CUDA_TRY(cudaGetLastError());
      v.b += part.rows * part.rank;
      v.first_u += part.rank;
    }
    return Status::ok();
  });
}

}  // namespace strata::kernels::cuda

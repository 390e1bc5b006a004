#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/gated_rmsnorm.h>

#include "cuda/partial_sums.cuh"
#include "cuda/recurrent/gated_norm_rows.h"
#include "work_split.h"

// A half warp for each head; sums over heads take a thread for each column of a block of heads.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_heads(const T* x, const T* z, const T* weight, T* y, float* rstd, float eps, std::int64_t heads,
                    std::int64_t n) {
  const std::int64_t i = dispatch::half_warp_index();
  if (i >= heads) return;
  const dispatch::HalfWarp lanes;
  const float of_head = detail::gated_norm_row(lanes, x + i * n, z + i * n, weight, y + i * n, eps, n);
  if (lanes.is_leader()) rstd[i] = of_head;
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_heads_backward(const T* x, const T* z, const T* weight, const float* rstd, const T* dy, T* dx,
                             T* dz, std::int64_t heads, std::int64_t n) {
  const std::int64_t i = dispatch::half_warp_index();
  if (i >= heads) return;
  detail::gated_norm_row_backward(dispatch::HalfWarp(), x + i * n, z + i * n, weight, rstd[i], dy + i * n,
                                  dx + i * n, dz + i * n, n);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_columns(const T* x, const T* z, const float* rstd, const T* dy, float* partials, std::int64_t heads,
                std::int64_t heads_of_block, std::int64_t n) {
  const std::int64_t column = dispatch::thread_index(), block = blockIdx.y;
  if (column >= n) return;
  const std::int64_t first = block * heads_of_block,
                     last = first + heads_of_block < heads ? first + heads_of_block : heads;
  partials[block * n + column] = detail::gated_norm_column(x, z, rstd, dy, first, last, column, n);
}

}  // namespace

Status gated_rmsnorm_forward(Backend&, Stream& stream, const GatedRmsnormForwardArgs& a) {
  if (a.x.n_elems() == 0) return Status::ok();
  const std::int64_t n = a.weight.n_elems(), heads = a.x.n_elems() / n;
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    normalize_heads<<<dispatch::num_blocks(heads, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
        a.x.as<T>(), a.z.as<T>(), a.weight.as<T>(), a.y.as<T>(), a.rstd.as<float>(), a.eps, heads, n);
  });
}

// dx may be dy, so the kernel that reads all of dy comes first.
Status gated_rmsnorm_backward(Backend&, Stream& stream, const GatedRmsnormBackwardArgs& a) {
  const std::int64_t n = a.weight.n_elems(), heads = a.x.n_elems() / n;
  const detail::RowBlocks blocks = detail::row_blocks(heads);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (heads > 0)
    STRATA_TRY(dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      const T *const x = a.x.as<T>(), *const z = a.z.as<T>(), *const dy = a.dy.as<T>();
      const dim3 by_blocks = {dispatch::num_blocks(n, kThreads), static_cast<unsigned>(blocks.count)};
      sum_columns<<<by_blocks, kThreads, 0, queue>>>(x, z, a.rstd.as<float>(), dy, partials, heads,
                                                     blocks.rows, n);
      normalize_heads_backward<<<dispatch::num_blocks(heads, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
          x, z, a.weight.as<T>(), a.rstd.as<float>(), dy, a.dx.as<T>(), a.dz.as<T>(), heads, n);
    }));
  return sum_partials(partials, blocks.count, n, a.dweight, a.accumulate_dweight, queue);
}

}  // namespace strata::kernels::cuda

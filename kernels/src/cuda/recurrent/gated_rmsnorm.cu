#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/gated_rmsnorm.h>

#include "cuda/partial_sums.cuh"
#include "cuda/recurrent/gated_norm_rows.h"
#include "recurrent/gated_norm_shape.h"
#include "work_split.h"

// A half warp for each head; sums over heads take a thread for each column of a block of heads.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;

template <class Rule, class T>
__global__ void __launch_bounds__(kThreads)
    normalize_heads(const T* x, const T* z, const T* weight, T* y, float* rstd, float eps, std::int64_t heads,
                    std::int64_t n, std::int64_t of_weight) {
  const std::int64_t i = dispatch::half_warp_index();
  if (i >= heads) return;
  const dispatch::HalfWarp lanes;
  const float of_head = detail::gated_norm_row<Rule>(lanes, x + i * n, z + i * n, weight + i % of_weight * n,
                                                     y + i * n, eps, n);
  if (lanes.is_leader()) rstd[i] = of_head;
}
template <class Rule, class T>
__global__ void __launch_bounds__(kThreads)
    normalize_heads_backward(const T* x, const T* z, const T* weight, const float* rstd, const T* dy, T* dx,
                             T* dz, std::int64_t heads, std::int64_t n, std::int64_t of_weight) {
  const std::int64_t i = dispatch::half_warp_index();
  if (i >= heads) return;
  detail::gated_norm_row_backward<Rule>(dispatch::HalfWarp(), x + i * n, z + i * n,
                                        weight + i % of_weight * n, rstd[i], dy + i * n, dx + i * n,
                                        dz + i * n, n);
}
template <class Rule, class T>
__global__ void __launch_bounds__(kThreads)
    sum_columns(const T* x, const T* z, const float* rstd, const T* dy, float* partials, std::int64_t rows,
                std::int64_t rows_of_block, std::int64_t columns, std::int64_t n) {
  const std::int64_t column = dispatch::thread_index(), block = blockIdx.y;
  if (column >= columns) return;
  const std::int64_t first = block * rows_of_block,
                     last = first + rows_of_block < rows ? first + rows_of_block : rows;
  partials[block * columns + column] =
      detail::gated_norm_column<Rule>(x, z, rstd, dy, first, last, column, columns, n);
}

/// Calls launch(the rule's type, the stored type).
template <class Launch>
Status launch_gated_norm(DType dtype, bool gate_first, const Launch& launch) {
  return dispatch::dispatch_launch(dtype, [&]<class T>(std::type_identity<T> type) {
    if (gate_first)
      launch(detail::GateBeforeNorm(), type);
    else
      launch(detail::GateAfterNorm(), type);
  });
}

}  // namespace

Status gated_rmsnorm_forward(Backend&, Stream& stream, const GatedRmsnormForwardArgs& a) {
  if (a.x.n_elems() == 0) return Status::ok();
  const detail::GatedNormShape shape = detail::gated_norm_shape(a.x, a.weight, a.head_dim);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_gated_norm(a.x.dtype, a.gate_first, [&]<class Rule, class T>(Rule, std::type_identity<T>) {
    normalize_heads<Rule><<<dispatch::num_blocks(shape.heads, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
        a.x.as<T>(), a.z.as<T>(), a.weight.as<T>(), a.y.as<T>(), a.rstd.as<float>(), a.eps, shape.heads,
        shape.n, shape.of_weight);
  });
}

// dx may be dy, so the kernel that reads all of dy comes first.
Status gated_rmsnorm_backward(Backend&, Stream& stream, const GatedRmsnormBackwardArgs& a) {
  const detail::GatedNormShape shape = detail::gated_norm_shape(a.x, a.weight, a.head_dim);
  const std::int64_t columns = shape.of_weight * shape.n, rows = shape.heads / shape.of_weight;
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(
        launch_gated_norm(a.x.dtype, a.gate_first, [&]<class Rule, class T>(Rule, std::type_identity<T>) {
          const T *const x = a.x.as<T>(), *const z = a.z.as<T>(), *const dy = a.dy.as<T>();
          const dim3 by_blocks = {dispatch::num_blocks(columns, kThreads),
                                  static_cast<unsigned>(blocks.count)};
          sum_columns<Rule><<<by_blocks, kThreads, 0, queue>>>(x, z, a.rstd.as<float>(), dy, partials, rows,
                                                               blocks.rows, columns, shape.n);
          normalize_heads_backward<Rule>
              <<<dispatch::num_blocks(shape.heads, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
                  x, z, a.weight.as<T>(), a.rstd.as<float>(), dy, a.dx.as<T>(), a.dz.as<T>(), shape.heads,
                  shape.n, shape.of_weight);
        }));
  return sum_partials(partials, blocks.count, columns, a.dweight, a.accumulate_dweight, queue);
}

}  // namespace strata::kernels::cuda

#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/delta_gates.h>

#include "cuda/partial_sums.cuh"
#include "recurrent/gate_math.h"
#include "work_split.h"

// The grids have heads in x, and in y rows or blocks of rows.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads)
    find_gates(const T* ba, const float* a_log, const float* dt_bias, float* g, float* beta,
               std::int64_t rows, std::int64_t n) {
  const std::int64_t h = dispatch::thread_index();
  if (h >= n) return;
  for (std::int64_t t = blockIdx.y; t < rows; t += gridDim.y) {
    beta[t * n + h] = simd::sigmoid_of(to_f32(ba[t * 2 * n + h])).value;
    g[t * n + h] = detail::delta_decay_gate(to_f32(ba[t * 2 * n + n + h]), a_log[h], dt_bias[h]);
  }
}
// dba may be ba: a thread reads what it overwrites.
template <class T>
__global__ void __launch_bounds__(kThreads)
    find_gate_gradients(const T* ba, const float* a_log, const float* dt_bias, const float* dg,
                        const float* dbeta, T* dba, float* partials, std::int64_t rows,
                        std::int64_t rows_of_block, std::int64_t n) {
  const std::int64_t h = dispatch::thread_index(), block = blockIdx.y;
  if (h >= n) return;
  const std::int64_t first = block * rows_of_block,
                     last = first + rows_of_block < rows ? first + rows_of_block : rows;
  float of_a_log = 0.0f, of_dt_bias = 0.0f;
  for (std::int64_t t = first; t < last; ++t) {
    const float x = to_f32(ba[t * 2 * n + n + h]), b = to_f32(ba[t * 2 * n + h]),
                d = dg == nullptr ? 0.0f : dg[t * n + h], d_beta = dbeta == nullptr ? 0.0f : dbeta[t * n + h];
    const float dx = detail::delta_decay_gate_backward(x, a_log[h], dt_bias[h], d);
    of_a_log = of_a_log + d * detail::delta_decay_gate(x, a_log[h], dt_bias[h]);
    of_dt_bias = of_dt_bias + dx;
    dba[t * 2 * n + h] = from_f32<T>(detail::delta_beta_backward(b, d_beta));
    dba[t * 2 * n + n + h] = from_f32<T>(dx);
  }
  partials[block * 2 * n + h] = of_a_log;
  partials[block * 2 * n + n + h] = of_dt_bias;
}

const float* gradient_or_null(const TensorView& view) {
  return dispatch::is_present(view) ? view.as<float>() : nullptr;
}

}  // namespace

Status delta_gates_forward(Backend&, Stream& stream, const DeltaGatesForwardArgs& a) {
  if (a.g.n_elems() == 0) return Status::ok();
  const std::int64_t rows = dispatch::row_count(a.g), n = dispatch::row_length(a.g);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.ba.dtype, [&]<class T>(std::type_identity<T>) {
    find_gates<<<dispatch::row_grid(rows, n), kThreads, 0, queue>>>(a.ba.as<T>(), a.a_log.as<float>(),
                                                                    a.dt_bias.as<float>(), a.g.as<float>(),
                                                                    a.beta.as<float>(), rows, n);
  });
}

Status delta_gates_backward(Backend&, Stream& stream, const DeltaGatesBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.ba), n = dispatch::row_length(a.ba) / 2;
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch::dispatch_launch(a.ba.dtype, [&]<class T>(std::type_identity<T>) {
      const dim3 by_blocks = {dispatch::num_blocks(n, kThreads), static_cast<unsigned>(blocks.count)};
      find_gate_gradients<<<by_blocks, kThreads, 0, queue>>>(
          a.ba.as<T>(), a.a_log.as<float>(), a.dt_bias.as<float>(), gradient_or_null(a.dg),
          gradient_or_null(a.dbeta), a.dba.as<T>(), partials, rows, blocks.rows, n);
    }));
  STRATA_TRY(sum_partials(partials, blocks.count, 2 * n, a.da_log, a.accumulate_da_log, queue));
  return sum_partials(partials + n, blocks.count, 2 * n, a.ddt_bias, a.accumulate_ddt_bias, queue);
}

}  // namespace strata::kernels::cuda

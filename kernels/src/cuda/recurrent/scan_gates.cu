#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/scan_gates.h>

#include "cuda/partial_sums.cuh"
#include "recurrent/gate_math.h"
#include "work_split.h"

// The grids have heads in x, and in y rows or blocks of rows.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads)
    find_steps(const T* dt, const float* a_log, const float* dt_bias, StepLimits limits, float* steps,
               float* g, std::int64_t rows, std::int64_t n) {
  const std::int64_t h = dispatch::thread_index();
  if (h >= n) return;
  for (std::int64_t t = blockIdx.y; t < rows; t += gridDim.y) {
    const float step = detail::scan_step(to_f32(dt[t * n + h]), dt_bias[h], limits.low, limits.high).value;
    steps[t * n + h] = step;
    g[t * n + h] = detail::scan_decay_gate(a_log[h], step);
  }
}
// ddt may be dt: a thread reads what it overwrites.
template <class T>
__global__ void __launch_bounds__(kThreads)
    find_step_gradients(const T* dt, const float* a_log, const float* dt_bias, StepLimits limits,
                        const float* dsteps, const float* dg, T* ddt, float* partials, std::int64_t rows,
                        std::int64_t rows_of_block, std::int64_t n) {
  const std::int64_t h = dispatch::thread_index(), block = blockIdx.y;
  if (h >= n) return;
  const std::int64_t first = block * rows_of_block,
                     last = first + rows_of_block < rows ? first + rows_of_block : rows;
  float of_a_log = 0.0f, of_dt_bias = 0.0f;
  for (std::int64_t t = first; t < last; ++t) {
    const std::int64_t at = t * n + h;
    const detail::ScanStep step = detail::scan_step(to_f32(dt[at]), dt_bias[h], limits.low, limits.high);
    const float of_g = dg == nullptr ? 0.0f : dg[at];
    const float d =
        detail::scan_gates_backward_of(step, a_log[h], dsteps == nullptr ? 0.0f : dsteps[at], of_g);
    of_a_log = of_a_log + of_g * detail::scan_decay_gate(a_log[h], step.value);
    of_dt_bias = of_dt_bias + d;
    ddt[at] = from_f32<T>(d);
  }
  partials[block * 2 * n + h] = of_a_log;
  partials[block * 2 * n + n + h] = of_dt_bias;
}

const float* floats_or_null(const TensorView& view) {
  return dispatch::is_present(view) ? view.as<float>() : nullptr;
}

}  // namespace

Status scan_gates_forward(Backend&, Stream& stream, const ScanGatesForwardArgs& a) {
  if (a.g.n_elems() == 0) return Status::ok();
  const std::int64_t rows = dispatch::row_count(a.g), n = dispatch::row_length(a.g);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dt.dtype, [&]<class T>(std::type_identity<T>) {
    find_steps<<<dispatch::row_grid(rows, n), kThreads, 0, queue>>>(
        a.dt.as<T>(), a.a_log.as<float>(), a.dt_bias.as<float>(), a.limits, a.step.as<float>(),
        a.g.as<float>(), rows, n);
  });
}

Status scan_gates_backward(Backend&, Stream& stream, const ScanGatesBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dt), n = dispatch::row_length(a.dt);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch::dispatch_launch(a.dt.dtype, [&]<class T>(std::type_identity<T>) {
      const dim3 by_blocks = {dispatch::num_blocks(n, kThreads), static_cast<unsigned>(blocks.count)};
      find_step_gradients<<<by_blocks, kThreads, 0, queue>>>(
          a.dt.as<T>(), a.a_log.as<float>(), a.dt_bias.as<float>(), a.limits, floats_or_null(a.dstep),
          floats_or_null(a.dg), a.ddt.as<T>(), partials, rows, blocks.rows, n);
    }));
  STRATA_TRY(sum_partials(partials, blocks.count, 2 * n, a.da_log, a.accumulate_da_log, queue));
  return sum_partials(partials + n, blocks.count, 2 * n, a.ddt_bias, a.accumulate_ddt_bias, queue);
}

}  // namespace strata::kernels::cuda

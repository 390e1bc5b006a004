#include <strata/cpuopt/norm.h>
#include <strata/kernels/device_update.h>

#include "cuda/launch.h"
#include "cuda/row_math.h"

namespace strata::kernels::cuda {
namespace {

using detail::blocks_of;
using detail::HalfWarp;
using detail::kRowsPerBlock;
using detail::kThreads;
using detail::lanes_index;
using detail::thread_index;

__global__ void __launch_bounds__(kThreads) add_to(float* acc, const float* g, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) acc[i] = acc[i] + g[i];
}

// Sixteen lanes a leaf.
__global__ void __launch_bounds__(kThreads)
    leaves_of(const float* x, double* leaves, std::int64_t n, std::int64_t count) {
  const std::int64_t leaf = lanes_index();
  if (leaf >= count) return;
  const std::int64_t first = leaf * cpuopt::kNormLeafElems, left = n - first;
  const HalfWarp lanes;
  const double sum =
      detail::square_sum(lanes, x + first, left < cpuopt::kNormLeafElems ? left : cpuopt::kNormLeafElems);
  if (lanes.leads()) leaves[leaf] = sum;
}

}  // namespace

Status adamw(Backend&, Stream& stream, const AdamWArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return launch_update(cpuopt::update_step(a.params),
                       {.param = a.p.as<float>(),
                        .m = {a.m.as<float>(), nullptr},
                        .v = {a.v.as<float>(), nullptr},
                        .g = a.g.as<float>()},
                       a.p.n_elems(), {}, queue,
                       detail::is_given(a.grad_factor) ? a.grad_factor.as<float>() : nullptr);
}

Status accumulate(Backend&, Stream& stream, const AccumulateArgs& a) {
  const std::int64_t n = a.acc.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  add_to<<<blocks_of(n, kThreads), kThreads, 0, queue>>>(a.acc.as<float>(), a.g.as<float>(), n);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status square_sum_leaves(Backend&, Stream& stream, const SquareSumLeavesArgs& a) {
  const std::int64_t n = a.x.n_elems(), count = cpuopt::norm_leaves(n);
  if (count == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  leaves_of<<<blocks_of(count, kRowsPerBlock), kThreads, 0, queue>>>(a.x.as<float>(), a.leaves.as<double>(),
                                                                     n, count);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace strata::kernels::cuda

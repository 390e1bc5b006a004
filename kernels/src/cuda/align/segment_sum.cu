#include <strata/dispatch/cuda/launch.h>
#include <strata/kernels/align/segment_sum.h>

#include "align/segment_math.h"

// A warp per segment reads the segments of 32 values at a time and adds those of its own in order, so that a
// sum has the host's bits. The backward takes one thread per value.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = ~0u;

__global__ void __launch_bounds__(kThreads)
    sum_segments(const float* x, const std::int32_t* segments, std::int64_t tokens, float* sums,
                 float* counts, std::int64_t n, bool mean) {
  const std::int64_t segment = thread_index() / kWarp;
  if (segment >= n) return;  // all lanes of the warp
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  double sum = 0.0, count = 0.0;
  for (std::int64_t first = 0; first < tokens; first += kWarp) {
    const std::int64_t t = first + lane;
    const bool is_own = t < tokens && segments[t] == segment;
    const float value = is_own ? x[t] : 0.0f;
    for (unsigned own = __ballot_sync(kAllLanes, is_own); own != 0; own &= own - 1) {
      sum = sum + static_cast<double>(__shfl_sync(kAllLanes, value, __ffs(static_cast<int>(own)) - 1));
      count = count + 1.0;
    }
  }
  if (lane != 0) return;
  sums[segment] = detail::segment_result(sum, count, mean);
  counts[segment] = static_cast<float>(count);
}

__global__ void __launch_bounds__(kThreads)
    segment_gradients(const std::int32_t* segments, const float* dsums, const float* counts, float* dx,
                      std::int64_t tokens) {
  if (const std::int64_t t = thread_index(); t < tokens)
    dx[t] = detail::segment_gradient(segments[t], dsums, counts);
}

}  // namespace

Status segment_sum(Backend&, Stream& stream, const SegmentSumArgs& a) {
  const std::int64_t n = a.sums.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  sum_segments<<<num_blocks(n * kWarp, kThreads), kThreads, 0, queue>>>(
      a.x.as<float>(), a.segments.as<std::int32_t>(), a.x.n_elems(), a.sums.as<float>(), a.counts.as<float>(),
      n, a.mean);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status segment_sum_backward(Backend&, Stream& stream, const SegmentSumBackwardArgs& a) {
  const std::int64_t tokens = a.dx.n_elems();
  if (tokens == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  segment_gradients<<<num_blocks(tokens, kThreads), kThreads, 0, queue>>>(
      a.segments.as<std::int32_t>(), a.dsums.as<float>(), a.mean ? a.counts.as<float>() : nullptr,
      a.dx.as<float>(), tokens);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace strata::kernels::cuda

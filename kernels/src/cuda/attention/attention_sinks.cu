#include <strata/dispatch/cuda/launch.h>
#include <strata/kernels/attention.h>

#include "attention/merge_heads.h"

// One thread block per head. A thread adds up every kThreads-th row, then the block adds up its threads in a
// tree.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;

template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_sink_gradients(const float* lse, const float* delta, const T* sinks, Out* dsinks, std::int64_t rows,
                       std::int64_t heads, std::int64_t seq, bool accumulate) {
  __shared__ double sums[kThreads];
  const std::int64_t head = blockIdx.x;
  const float sink = to_f32(sinks[head]);
  double sum = 0.0;
  for (std::int64_t t = threadIdx.x; t < rows; t += kThreads) {
    const std::int64_t stat = detail::stat_of(t, head, heads, seq);
    sum = sum + detail::sink_gradient(lse[stat], delta[stat], sink);
  }
  sums[threadIdx.x] = sum;
  for (unsigned n = kThreads / 2; n > 0; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + n];
  }
  if (threadIdx.x != 0) return;
  const auto rounded = static_cast<float>(sums[0]);
  dsinks[head] = from_f32<Out>(accumulate ? to_f32(dsinks[head]) + rounded : rounded);
}

template <class T, class Out>
void launch_sinks(const AttentionBackwardSinksArgs& a, cudaStream_t queue) {
  const std::int64_t heads = a.sinks.n_elems();
  sum_sink_gradients<<<static_cast<unsigned>(heads), kThreads, 0, queue>>>(
      a.lse.as<float>(), a.delta.as<float>(), a.sinks.as<T>(), a.dsinks.as<Out>(), a.lse.n_elems() / heads,
      heads, a.seq, a.accumulate);
}

}  // namespace

Status attention_backward_sinks(Backend&, Stream& stream, const AttentionBackwardSinksArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.sinks.dtype, [&]<class T>(std::type_identity<T>) {
    if (a.dsinks.dtype == DType::f32)
      launch_sinks<T, float>(a, queue);
    else
      launch_sinks<T, T>(a, queue);
  });
}

}  // namespace strata::kernels::cuda

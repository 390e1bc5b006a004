#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/biases.h>

#include "experts/bias_math.h"

namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;
using dispatch::row_grid;

// The grids of the first three have columns in x, and tokens or experts in y, of which a block has several if
// there are many.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_router_bias(const float* logits, const T* bias, float* sums, std::int64_t tokens, std::int64_t n) {
  const std::int64_t e = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= n) return;
  for (std::int64_t t = blockIdx.y; t < tokens; t += gridDim.y)
    sums[t * n + e] = logits[t * n + e] + to_f32(bias[e]);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_expert_biases(const T* bias, const float* weights, const std::int32_t* experts, T* y,
                      std::int64_t tokens, std::int64_t k, std::int64_t n_experts, std::int64_t h) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= h) return;
  for (std::int64_t t = blockIdx.y; t < tokens; t += gridDim.y)
    y[t * h + c] =
        from_f32<T>(detail::expert_bias_of_token(bias, weights + t * k, experts + t * k, k, n_experts, h, c));
}
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_bias_gradients(const T* dy, const float* weights, const std::int32_t* offsets,
                       const std::int32_t* source, Out* dbias, std::int64_t n_experts, std::int64_t k,
                       std::int64_t h, bool accumulate) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= h) return;
  for (std::int64_t e = blockIdx.y; e < n_experts; e += gridDim.y) {
    const float sum = detail::expert_bias_gradient(dy, weights, source, offsets[e], offsets[e + 1], k, h, c);
    Out& into = dbias[e * h + c];
    into = from_f32<Out>(accumulate ? to_f32(into) + sum : sum);
  }
}
// A half warp per choice.
template <class T>
__global__ void __launch_bounds__(kThreads)
    find_weight_gradients(const T* dy, const T* bias, const std::int32_t* experts, float* dweights,
                          std::int64_t choices, std::int64_t k, std::int64_t n_experts, std::int64_t h) {
  const std::int64_t c = dispatch::half_warp_index();
  if (c >= choices) return;
  const dispatch::HalfWarp lanes;
  const float sum = detail::expert_bias_weight_gradient(
      lanes, dy + c / k * h, bias + detail::bounded_expert(experts[c], n_experts) * h, h);
  if (lanes.is_leader()) dweights[c] = sum;
}

template <class T, class Out>
void launch_bias_gradients(const ExpertBiasBackwardArgs& a, cudaStream_t queue) {
  const std::int64_t n_experts = dispatch::row_count(a.dbias), h = dispatch::row_length(a.dbias);
  sum_bias_gradients<<<row_grid(n_experts, h), kThreads, 0, queue>>>(
      a.dy.as<T>(), a.weights.as<float>(), a.offsets.as<std::int32_t>(), a.source.as<std::int32_t>(),
      a.dbias.as<Out>(), n_experts, dispatch::row_length(a.weights), h, a.accumulate);
}

}  // namespace

Status router_bias(Backend&, Stream& stream, const RouterBiasArgs& a) {
  if (a.sums.n_elems() == 0) return Status::ok();
  const std::int64_t tokens = dispatch::row_count(a.logits), n = dispatch::row_length(a.logits);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.bias.dtype, [&]<class T>(std::type_identity<T>) {
    add_router_bias<<<row_grid(tokens, n), kThreads, 0, queue>>>(a.logits.as<float>(), a.bias.as<T>(),
                                                                 a.sums.as<float>(), tokens, n);
  });
}

Status expert_bias_forward(Backend&, Stream& stream, const ExpertBiasForwardArgs& a) {
  if (a.y.n_elems() == 0) return Status::ok();
  const std::int64_t tokens = dispatch::row_count(a.y), h = dispatch::row_length(a.y);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.y.dtype, [&]<class T>(std::type_identity<T>) {
    add_expert_biases<<<row_grid(tokens, h), kThreads, 0, queue>>>(
        a.bias.as<T>(), a.weights.as<float>(), a.experts.as<std::int32_t>(), a.y.as<T>(), tokens,
        dispatch::row_length(a.weights), dispatch::row_count(a.bias), h);
  });
}

Status expert_bias_backward(Backend&, Stream& stream, const ExpertBiasBackwardArgs& a) {
  if (a.dbias.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    if (a.dbias.dtype == DType::f32)
      launch_bias_gradients<T, float>(a, queue);
    else
      launch_bias_gradients<T, T>(a, queue);
  });
}

Status expert_bias_backward_weights(Backend&, Stream& stream, const ExpertBiasBackwardWeightsArgs& a) {
  const std::int64_t choices = a.experts.n_elems();
  if (choices == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    find_weight_gradients<<<dispatch::num_blocks(choices, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
        a.dy.as<T>(), a.bias.as<T>(), a.experts.as<std::int32_t>(), a.dweights.as<float>(), choices,
        dispatch::row_length(a.experts), dispatch::row_count(a.bias), dispatch::row_length(a.dy));
  });
}

}  // namespace strata::kernels::cuda

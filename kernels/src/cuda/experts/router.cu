#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/router.h>

#include "experts/router_math.h"

// A half warp per token, whose scores are in shared memory.
namespace strata::kernels::cuda {
namespace {

using detail::RouterShape;
using detail::RouterSpace;
using dispatch::HalfWarp;

constexpr int kTokensPerBlock = 8, kRouterThreads = kTokensPerBlock * dispatch::kLanes;

/// The shared memory of the half warp's token.
__device__ RouterSpace space_of_token(const RouterShape& shape) {
  extern __shared__ float router_memory[];
  const std::int64_t each = shape.scratch_floats();
  float* const scores = router_memory + threadIdx.x / dispatch::kLanes * each;
  return {scores, scores + shape.experts};
}
std::size_t shared_bytes(const RouterShape& shape) {
  return static_cast<std::size_t>(kTokensPerBlock * shape.scratch_floats()) * sizeof(float);
}

__global__ void __launch_bounds__(kRouterThreads)
    top_k(RouterShape shape, std::int64_t tokens, const float* logits, const float* bias,
          std::int32_t* experts, float* weights) {
  const std::int64_t t = dispatch::half_warp_index();
  if (t < tokens)
    detail::route_token(HalfWarp(), shape, space_of_token(shape), logits + t * shape.experts, bias,
                        experts + t * shape.chosen, weights + t * shape.chosen);
}
template <class T>
__global__ void __launch_bounds__(kRouterThreads)
    top_k_backward(RouterShape shape, std::int64_t tokens, const float* logits, const std::int32_t* experts,
                   const float* dweights, T* dlogits) {
  const std::int64_t t = dispatch::half_warp_index();
  if (t < tokens)
    detail::route_token_backward(HalfWarp(), shape, space_of_token(shape), logits + t * shape.experts,
                                 experts + t * shape.chosen, dweights + t * shape.chosen,
                                 dlogits + t * shape.experts);
}

RouterShape shape_of(const RouterRule& rule, const TensorView& logits, const TensorView& experts) {
  return {rule, dispatch::row_length(logits), dispatch::row_length(experts)};
}

}  // namespace

Status router_top_k(Backend&, Stream& stream, const RouterTopKArgs& a) {
  const RouterShape shape = shape_of(a.rule, a.logits, a.experts);
  const std::int64_t tokens = dispatch::row_count(a.logits);
  if (tokens == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  top_k<<<dispatch::num_blocks(tokens, kTokensPerBlock), kRouterThreads, shared_bytes(shape), queue>>>(
      shape, tokens, a.logits.as<float>(), dispatch::is_present(a.bias) ? a.bias.as<float>() : nullptr,
      a.experts.as<std::int32_t>(), a.weights.as<float>());
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status router_top_k_backward(Backend&, Stream& stream, const RouterTopKBackwardArgs& a) {
  const RouterShape shape = shape_of(a.rule, a.logits, a.experts);
  const std::int64_t tokens = dispatch::row_count(a.logits);
  if (tokens == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dlogits.dtype, [&]<class T>(std::type_identity<T>) {
    top_k_backward<<<dispatch::num_blocks(tokens, kTokensPerBlock), kRouterThreads, shared_bytes(shape),
                     queue>>>(shape, tokens, a.logits.as<float>(), a.experts.as<std::int32_t>(),
                              a.dweights.as<float>(), a.dlogits.as<T>());
  });
}

}  // namespace strata::kernels::cuda

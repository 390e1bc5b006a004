#include <strata/dispatch/cuda/launch.h>
#include <strata/kernels/align/pair_loss.h>
#include <strata/kernels/align/policy_loss.h>
#include <strata/kernels/align/value_loss.h>

#include "align/loss_reduction.h"
#include "align/pair_math.h"
#include "align/policy_math.h"
#include "align/value_math.h"
#include "cuda/thread_block.h"

// A loss takes one block; its gradient, one thread per token or pair.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

template <class Loss>
__global__ void __launch_bounds__(detail::kLossLanes) reduce(detail::LossCall<Loss> call) {
  __shared__ double lanes[detail::kLossResults<Loss>][detail::kLossLanes];
  detail::reduce_loss(detail::BlockThreads(), call, lanes);
}

template <class Loss>
__global__ void __launch_bounds__(kThreads) gradients(detail::LossGradientCall<Loss> call) {
  if (const std::int64_t i = thread_index(); i < call.items) detail::store_loss_gradient(call, i);
}

template <class Loss>
Status launch_loss(Stream& stream, const detail::LossCall<Loss>& call) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  reduce<Loss><<<1, detail::kLossLanes, 0, queue>>>(call);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

template <class Loss>
Status launch_gradient(Stream& stream, const detail::LossGradientCall<Loss>& call) {
  if (call.items == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  gradients<Loss><<<num_blocks(call.items, kThreads), kThreads, 0, queue>>>(call);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace

Status policy_loss(Backend&, Stream& stream, const PolicyLossArgs& a) {
  return launch_loss(stream,
                     detail::loss_call(detail::policy_loss(a.tokens, a.options), a.tokens.weights, a));
}
Status policy_loss_backward(Backend&, Stream& stream, const PolicyLossBackwardArgs& a) {
  return launch_gradient(stream, detail::loss_gradient_call(detail::policy_loss(a.tokens, a.options),
                                                            a.tokens.weights, a.divisor, a.dlog_probs));
}
Status value_loss(Backend&, Stream& stream, const ValueLossArgs& a) {
  return launch_loss(stream, detail::loss_call(detail::value_loss(a.tokens, a.options), a.tokens.weights, a));
}
Status value_loss_backward(Backend&, Stream& stream, const ValueLossBackwardArgs& a) {
  return launch_gradient(stream, detail::loss_gradient_call(detail::value_loss(a.tokens, a.options),
                                                            a.tokens.weights, a.divisor, a.dvalues));
}
Status pair_loss(Backend&, Stream& stream, const PairLossArgs& a) {
  return launch_loss(stream, detail::loss_call(detail::pair_loss(a.pairs, a.options), a.pairs.weights, a));
}
Status pair_loss_backward(Backend&, Stream& stream, const PairLossBackwardArgs& a) {
  return launch_gradient(stream, detail::loss_gradient_call(detail::pair_loss(a.pairs, a.options),
                                                            a.pairs.weights, a.divisor, a.dscores));
}

}  // namespace strata::kernels::cuda

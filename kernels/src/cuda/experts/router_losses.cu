#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/router_losses.h>

#include "align/loss_operands.h"
#include "experts/router_loss_math.h"
#include "work_split.h"

// A half warp per token, then a thread per block of tokens and sum, then a thread per sum.
namespace strata::kernels::cuda {
namespace {

using detail::TokenSoftmax;
using dispatch::HalfWarp;
using dispatch::kLanes;
using dispatch::kThreads;

__global__ void __launch_bounds__(kThreads)
    softmax_of_tokens(const float* logits, std::int64_t tokens, std::int64_t experts, TokenSoftmax* into) {
  const std::int64_t t = dispatch::half_warp_index();
  if (t >= tokens) return;
  const HalfWarp lanes;
  const TokenSoftmax softmax = detail::token_softmax(lanes, experts, logits + t * experts);
  if (lanes.is_leader()) into[t] = softmax;
}

// The grid has sums in x and blocks of tokens in y.
__global__ void __launch_bounds__(kThreads)
    sum_tokens(const float* logits, const TokenSoftmax* softmax, std::int64_t tokens, std::int64_t experts,
               std::int64_t rows, float* partials) {
  const std::int64_t i = dispatch::thread_index(), columns = detail::token_sums_of(experts);
  if (i >= columns) return;
  const std::int64_t first = blockIdx.y * rows, end = first + rows < tokens ? first + rows : tokens;
  float sum = 0.0f;
  for (std::int64_t t = first; t < end; ++t)
    sum = sum + detail::token_term(softmax[t], logits + t * experts, experts, i);
  partials[blockIdx.y * columns + i] = sum;
}
__global__ void __launch_bounds__(kThreads)
    add_layer(std::int64_t experts, const std::int32_t* offsets, const float* before, const float* partials,
              std::int64_t blocks, float* sums) {
  const std::int64_t i = dispatch::thread_index();
  if (i < detail::router_sums_of(experts))
    sums[i] = detail::router_sum(i, experts, offsets, before, partials, blocks);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_backward(const float* logits, std::int64_t tokens, std::int64_t experts, const float* dsums,
                  T* dlogits) {
  const std::int64_t t = dispatch::half_warp_index();
  if (t < tokens)
    detail::router_sums_token_backward(HalfWarp(), experts, logits + t * experts, dsums,
                                       dlogits + t * experts);
}

__global__ void __launch_bounds__(kLanes)
    losses_of(std::int64_t experts, std::int64_t rows, const float* sums, float* zero, float* losses) {
  detail::router_losses_of(HalfWarp(), experts, rows, sums, zero, losses);
}
__global__ void __launch_bounds__(kThreads)
    losses_backward(std::int64_t experts, std::int64_t rows, const float* sums, float aux_coef, float z_coef,
                    const float* factor, float* dsums) {
  const std::int64_t i = dispatch::thread_index();
  if (i < detail::router_sums_of(experts))
    dsums[i] = detail::router_losses_slope(i, experts, rows, sums, aux_coef, z_coef,
                                           factor != nullptr ? *factor : 1.0f);
}

}  // namespace

Status router_sums(Backend&, Stream& stream, const RouterSumsArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits);
  const detail::RowBlocks blocks = detail::row_blocks(tokens);
  auto* const softmax = reinterpret_cast<TokenSoftmax*>(a.workspace.data);
  auto* const partials = reinterpret_cast<float*>(softmax + tokens);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (tokens > 0) {
    softmax_of_tokens<<<dispatch::num_blocks(tokens, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
        a.logits.as<float>(), tokens, experts, softmax);
    STRATA_CUDA_TRY(cudaGetLastError());
    const dim3 grid = {dispatch::num_blocks(detail::token_sums_of(experts), kThreads),
                       static_cast<unsigned>(blocks.count)};
    sum_tokens<<<grid, kThreads, 0, queue>>>(a.logits.as<float>(), softmax, tokens, experts, blocks.rows,
                                             partials);
    STRATA_CUDA_TRY(cudaGetLastError());
  }
  add_layer<<<dispatch::num_blocks(detail::router_sums_of(experts), kThreads), kThreads, 0, queue>>>(
      experts, a.offsets.as<std::int32_t>(), detail::floats_or_null(a.before), partials, blocks.count,
      a.sums.as<float>());
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status router_sums_backward(Backend&, Stream& stream, const RouterSumsBackwardArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits);
  if (tokens == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dlogits.dtype, [&]<class T>(std::type_identity<T>) {
    sums_backward<<<dispatch::num_blocks(tokens, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
        a.logits.as<float>(), tokens, experts, a.dsums.as<float>(), a.dlogits.as<T>());
  });
}

Status router_losses(Backend&, Stream& stream, const RouterLossesArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  losses_of<<<1, kLanes, 0, queue>>>((a.sums.n_elems() - 1) / 2, a.rows, a.sums.as<float>(),
                                     a.zero.as<float>(), a.losses.as<float>());
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status router_losses_backward(Backend&, Stream& stream, const RouterLossesBackwardArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  losses_backward<<<dispatch::num_blocks(a.sums.n_elems(), kThreads), kThreads, 0, queue>>>(
      (a.sums.n_elems() - 1) / 2, a.rows, a.sums.as<float>(), a.aux_coef, a.z_coef,
      detail::floats_or_null(a.factor), a.dsums.as<float>());
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace strata::kernels::cuda

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/cross_entropy.h>

#include "cuda/loss/loss.h"
#include "cuda/loss/row_runs.cuh"
#include "cuda/row_math.h"
#include "loss/merge_row_loss.h"

namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

constexpr int kSumThreads = 1024;

template <class T>
__device__ float loss_of(const T* row, std::int32_t target, float lse) {
  return target >= 0 ? lse - to_f32(row[target]) : 0.0f;
}

// One block per row. `lse` may be null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_losses(const T* logits, const std::int32_t* targets, float* losses, float* lse, std::int64_t vocab) {
  const std::int64_t t = blockIdx.x;
  const T* row = logits + t * vocab;
  const float l = lse_of_row(row, vocab);
  if (threadIdx.x != 0) return;
  if (lse != nullptr) lse[t] = l;
  losses[t] = loss_of(row, targets[t], l);
}

__device__ double count_targets(const std::int32_t* targets, std::int64_t rows) {
  __shared__ unsigned long long all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  unsigned long long own = 0;
  for (std::int64_t t = threadIdx.x; t < rows; t += blockDim.x) own += targets[t] >= 0 ? 1 : 0;
  atomicAdd(&all, own);
  __syncthreads();
  return static_cast<double>(all);
}
__device__ double divisor_of(const float* given, const std::int32_t* targets, std::int64_t rows) {
  return given != nullptr ? static_cast<double>(*given) : count_targets(targets, rows);
}

// One block. Each thread computes the tree sum of a run of 2^k losses, and one thread the tree sum of these.
__global__ void __launch_bounds__(kSumThreads)
    reduce_mean_loss(const float* losses, const std::int32_t* targets, const float* given, float* mean,
                     std::int64_t rows) {
  __shared__ double sums[kSumThreads];
  const double divisor = divisor_of(given, targets, rows);
  std::int64_t run = 1;
  while (run * kSumThreads < rows) run *= 2;
  const std::int64_t first = threadIdx.x * run, left = rows - first;
  const std::int64_t n = left < 0 ? 0 : left < run ? left : run;
  sums[threadIdx.x] =
      detail::tree_sum_of(n, [&](std::int64_t i) { return static_cast<double>(losses[first + i]); });
  __syncthreads();
  if (threadIdx.x > 0) return;
  const double sum = detail::tree_sum_of((rows + run - 1) / run, [&](std::int64_t i) { return sums[i]; });
  *mean = divisor > 0 ? static_cast<float>(sum / divisor) : 0.0f;
}

// One block per row. Every block counts the divisor anew, because there is no workspace to leave it in.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_gradients(const T* logits, const std::int32_t* targets, const float* lse, const float* given,
                  T* dlogits, float factor, bool divides, std::int64_t rows, std::int64_t vocab) {
  const double divisor = divides ? divisor_of(given, targets, rows) : 1.0;
  const auto scale = static_cast<float>(static_cast<double>(factor) / (divisor > 0 ? divisor : 1.0));
  const std::int64_t t = blockIdx.x;
  const std::int32_t target = targets[t];
  const float l = lse[t];
  for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads) {
    const std::int64_t at = t * vocab + i;
    dlogits[at] = target < 0 ? from_f32<T>(0.0f) : detail::loss_gradient(logits[at], l, scale, i == target);
  }
}

// One block per row. The gradient may overwrite the logits.
template <class T>
__global__ void __launch_bounds__(kThreads) losses_and_gradients(detail::LossRows a) {
  const double divisor = divisor_of(a.divisor, a.all_targets, a.all_rows);
  const auto scale = static_cast<float>(static_cast<double>(a.factor) / (divisor > 0 ? divisor : 1.0));
  const std::int64_t t = blockIdx.x;
  const float* row = a.logits + t * a.vocab;
  T* out = reinterpret_cast<T*>(a.dlogits) + t * a.vocab;
  const std::int32_t target = a.targets[t];
  const float l = lse_of_row(row, a.vocab);
  if (threadIdx.x == 0) a.losses[t] = loss_of(row, target, l);
  __syncthreads();  // the target's logit has been read
  for (std::int64_t i = threadIdx.x; i < a.vocab; i += kThreads) {
    float d = target < 0 ? 0.0f : detail::loss_gradient(row[i], l, scale, i == target);
    if (a.softcap > 0) d = d * detail::cap_derivative(row[i], a.softcap);
    out[i] = from_f32<T>(d);
  }
}

// One block per row of a part of the vocabulary.
__global__ void __launch_bounds__(kThreads) row_log_sum_exps(detail::LossRows a) {
  const std::int64_t t = blockIdx.x;
  const float* row = a.logits + t * a.vocab;
  const float l = lse_of_row(row, a.vocab);
  if (threadIdx.x != 0) return;
  const std::int64_t target = a.own_target(a.targets[t]);
  a.lse[t] = l;
  a.losses[t] = target >= 0 ? row[target] : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads) part_gradients(detail::LossRows a) {
  const double divisor = divisor_of(a.divisor, a.all_targets, a.all_rows);
  const auto scale = static_cast<float>(static_cast<double>(a.factor) / (divisor > 0 ? divisor : 1.0));
  const std::int64_t t = blockIdx.x;
  const float* row = a.logits + t * a.vocab;
  T* out = reinterpret_cast<T*>(a.dlogits) + t * a.vocab;
  const bool counts = a.targets[t] >= 0;
  const std::int64_t target = a.own_target(a.targets[t]);
  for (std::int64_t i = threadIdx.x; i < a.vocab; i += kThreads) {
    float d = counts ? detail::loss_gradient(row[i], a.lse[t], scale, i == target) : 0.0f;
    if (a.softcap > 0) d = d * detail::cap_derivative(row[i], a.softcap);
    out[i] = from_f32<T>(d);
  }
}

__global__ void __launch_bounds__(kThreads)
    merge_rows(const float* stats, std::int64_t parts, const std::int32_t* targets, float* lse, float* losses,
               std::int64_t rows) {
  if (const std::int64_t t = thread_index(); t < rows)
    detail::merge_row_loss(stats + t, parts, rows, targets[t], lse[t], losses[t]);
}

__global__ void __launch_bounds__(kThreads) cap_logits(float* logits, float cap, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) logits[i] = detail::capped_logit(logits[i], cap);
}

}  // namespace
}  // namespace strata::kernels::cuda

namespace strata::kernels::detail {

static Status apply_softcap(const LossRows& a, cudaStream_t queue) {
  const std::int64_t n = a.rows * a.vocab;
  if (a.softcap == 0 || n == 0) return Status::ok();
  cuda::cap_logits<<<dispatch::num_blocks(n, dispatch::kThreads), dispatch::kThreads, 0, queue>>>(
      a.logits, a.softcap, n);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status compute_row_losses(const LossRows& a, cudaStream_t queue) {
  STRATA_TRY(apply_softcap(a, queue));
  cuda::row_losses<<<static_cast<unsigned>(a.rows), dispatch::kThreads, 0, queue>>>(
      a.logits, a.targets, a.losses, static_cast<float*>(nullptr), a.vocab);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}
Status compute_row_losses_and_gradients(const LossRows& a, cudaStream_t queue) {
  STRATA_TRY(apply_softcap(a, queue));
  return dispatch::dispatch_launch(a.dlogits_dtype, [&]<class T>(std::type_identity<T>) {
    cuda::losses_and_gradients<T><<<static_cast<unsigned>(a.rows), dispatch::kThreads, 0, queue>>>(a);
  });
}
Status compute_row_log_sum_exps(const LossRows& a, cudaStream_t queue) {
  STRATA_TRY(apply_softcap(a, queue));
  cuda::row_log_sum_exps<<<static_cast<unsigned>(a.rows), dispatch::kThreads, 0, queue>>>(a);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}
Status compute_part_gradients(const LossRows& a, cudaStream_t queue) {
  STRATA_TRY(apply_softcap(a, queue));
  return dispatch::dispatch_launch(a.dlogits_dtype, [&]<class T>(std::type_identity<T>) {
    cuda::part_gradients<T><<<static_cast<unsigned>(a.rows), dispatch::kThreads, 0, queue>>>(a);
  });
}
Status merge_row_losses(const float* stats, std::int64_t parts, const std::int32_t* targets, float* lse,
                        float* losses, std::int64_t rows, cudaStream_t queue) {
  if (rows == 0) return Status::ok();
  cuda::merge_rows<<<dispatch::num_blocks(rows, dispatch::kThreads), dispatch::kThreads, 0, queue>>>(
      stats, parts, targets, lse, losses, rows);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}
Status compute_mean_loss(const float* losses, const std::int32_t* targets, const float* divisor, float* mean,
                         std::int64_t rows, cudaStream_t queue) {
  cuda::reduce_mean_loss<<<1, cuda::kSumThreads, 0, queue>>>(losses, targets, divisor, mean, rows);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace strata::kernels::detail

namespace strata::kernels::cuda {

Status cross_entropy_forward(Backend&, Stream& stream, const CrossEntropyForwardArgs& a) {
  const std::int64_t vocab = dispatch::row_length(a.logits), rows = dispatch::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch_launch(a.logits.dtype, [&]<class T>(std::type_identity<T>) {
      row_losses<<<static_cast<unsigned>(rows), kThreads, 0, queue>>>(
          a.logits.as<T>(), targets, a.losses.as<float>(), a.lse.as<float>(), vocab);
    }));
  return detail::compute_mean_loss(a.losses.as<float>(), targets,
                                   dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr,
                                   a.mean_loss.as<float>(), rows, queue);
}

Status cross_entropy_backward(Backend&, Stream& stream, const CrossEntropyBackwardArgs& a) {
  const std::int64_t vocab = dispatch::row_length(a.logits), rows = dispatch::row_count(a.logits);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.logits.dtype, [&]<class T>(std::type_identity<T>) {
    row_gradients<<<static_cast<unsigned>(rows), kThreads, 0, queue>>>(
        a.logits.as<T>(), a.targets.as<std::int32_t>(), a.lse.as<float>(),
        dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr, a.dlogits.as<T>(), a.scale,
        a.mean_reduction, rows, vocab);
  });
}

}  // namespace strata::kernels::cuda

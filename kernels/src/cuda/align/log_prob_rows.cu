#include "cuda/align/log_prob_rows.h"

#include <strata/dispatch/cuda/launch.h>

#include "cuda/loss/row_runs.cuh"
#include "cuda/row_math.h"

namespace strata::kernels::cuda {
namespace {

using detail::LogProbRows;
using dispatch::kThreads;
using dispatch::thread_index;

__global__ void __launch_bounds__(kThreads)
    scale_logits(float* logits, float factor, float cap, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n)
    logits[i] = detail::scaled_capped_logit(logits[i], factor, cap);
}

// One block per row.
__global__ void __launch_bounds__(kThreads) row_log_probs(LogProbRows a) {
  const std::int64_t t = blockIdx.x;
  const std::int32_t target = a.targets[t];
  if (target < 0) {
    if (threadIdx.x > 0) return;
    a.log_probs[t] = a.lse[t] = 0.0f;
    if (a.entropies != nullptr) a.entropies[t] = 0.0f;
    return;
  }
  const float* row = a.logits + t * a.vocab;
  const float lse = lse_of_row(row, a.vocab);
  if (threadIdx.x == 0) {
    a.lse[t] = lse;
    a.log_probs[t] = 0.0f - (lse - row[target]);
  }
  if (a.entropies == nullptr) return;
  const double sum = sum_of_runs(n_runs(a.vocab), [&](const dispatch::HalfWarp& lanes, std::int64_t run) {
    return detail::entropy_sum_of_run(lanes, row, lse, run, a.vocab);
  });
  if (threadIdx.x == 0) a.entropies[t] = static_cast<float>(0.0 - sum);
}

// One block per row. The gradient may overwrite the logits.
template <class T>
__global__ void __launch_bounds__(kThreads) row_gradients(LogProbRows a) {
  const std::int64_t t = blockIdx.x;
  const float* row = a.logits + t * a.vocab;
  T* out = reinterpret_cast<T*>(a.dlogits) + t * a.vocab;
  const std::int32_t target = a.targets[t];
  const float lse = a.lse[t], scale = target < 0 ? 0.0f : 0.0f - a.dlog_probs[t] * a.factor;
  for (std::int64_t i = threadIdx.x; i < a.vocab; i += kThreads) {
    float d = target < 0 ? 0.0f : detail::loss_gradient(row[i], lse, scale, i == target);
    if (target >= 0 && a.cap > 0) d = d * detail::cap_derivative(row[i], a.cap * a.factor);
    out[i] = from_f32<T>(d);
  }
}

Status scale_rows(const LogProbRows& a, cudaStream_t queue) {
  const std::int64_t n = a.rows * a.vocab;
  if (a.cap == 0 && a.factor == 1) return Status::ok();
  scale_logits<<<dispatch::num_blocks(n, kThreads), kThreads, 0, queue>>>(a.logits, a.factor, a.cap, n);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace
}  // namespace strata::kernels::cuda

namespace strata::kernels::detail {

Status compute_log_probs(const LogProbRows& a, cudaStream_t queue) {
  STRATA_TRY(cuda::scale_rows(a, queue));
  cuda::row_log_probs<<<static_cast<unsigned>(a.rows), dispatch::kThreads, 0, queue>>>(a);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status compute_log_prob_gradients(const LogProbRows& a, cudaStream_t queue) {
  STRATA_TRY(cuda::scale_rows(a, queue));
  return dispatch::dispatch_launch(a.dlogits_dtype, [&]<class T>(std::type_identity<T>) {
    cuda::row_gradients<T><<<static_cast<unsigned>(a.rows), dispatch::kThreads, 0, queue>>>(a);
  });
}

}  // namespace strata::kernels::detail

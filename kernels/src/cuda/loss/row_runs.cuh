#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>

#include "cuda/row_math.h"

// Sums over a row of logits that a whole block of kThreads threads computes: each half warp handles runs of
// the row, whose sums are added in f64, in order.
namespace strata::kernels::cuda {
namespace {

/// The sum of run_sum(lanes, run), in thread 0.
template <class RunSum>
__device__ double sum_of_runs(std::int64_t runs, const RunSum& run_sum) {
  using dispatch::kRowsPerBlock;
  __shared__ float sums[kRowsPerBlock];
  const auto group = static_cast<int>(threadIdx.x) / dispatch::kLanes;
  const dispatch::HalfWarp lanes;
  double total = 0.0;
  for (std::int64_t first = 0; first < runs; first += kRowsPerBlock) {
    if (first + group < runs) {
      const float sum = run_sum(lanes, first + group);
      if (lanes.is_leader()) sums[group] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < kRowsPerBlock && first + i < runs; ++i) total += static_cast<double>(sums[i]);
    __syncthreads();
  }
  return total;
}

/// The maximum of a row, in every thread.
template <class T>
__device__ float max_of_runs(const T* row, std::int64_t vocab, std::int64_t runs) {
  using detail::kLseRun;
  using dispatch::kRowsPerBlock;
  __shared__ float group_max[kRowsPerBlock];
  const auto group = static_cast<int>(threadIdx.x) / dispatch::kLanes;
  const dispatch::HalfWarp lanes;
  float local_max = detail::kLowestScore;
  for (std::int64_t run = group; run < runs; run += kRowsPerBlock) {
    const std::int64_t at = run * kLseRun, n = vocab - at < kLseRun ? vocab - at : kLseRun;
    const float of_run = detail::max_of_row(lanes, row + at, n);
    local_max = of_run > local_max ? of_run : local_max;
  }
  if (lanes.is_leader()) group_max[group] = local_max;
  __syncthreads();
  float row_max = group_max[0];
  for (const float other : group_max) row_max = other > row_max ? other : row_max;
  return row_max;
}

inline __device__ std::int64_t n_runs(std::int64_t vocab) {
  return (vocab + detail::kLseRun - 1) / detail::kLseRun;
}

/// The log-sum-exp of a row, in every thread.
template <class T>
__device__ float lse_of_row(const T* row, std::int64_t vocab) {
  __shared__ float shared;
  const std::int64_t runs = n_runs(vocab);
  const float row_max = max_of_runs(row, vocab, runs);
  const double total = sum_of_runs(runs, [&](const dispatch::HalfWarp& lanes, std::int64_t run) {
    return detail::exp_sum_of_run(lanes, row, row_max, run, vocab);
  });
  if (threadIdx.x == 0) shared = detail::lse_of(row_max, total);
  __syncthreads();
  return shared;
}

}  // namespace
}  // namespace strata::kernels::cuda

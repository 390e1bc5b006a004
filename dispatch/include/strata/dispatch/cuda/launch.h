#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/status.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"

namespace strata::dispatch {

inline constexpr int kThreads = 256;
inline constexpr int kRowsPerBlock = kThreads / kLanes;

inline unsigned num_blocks(std::int64_t n, std::int64_t per_block) {
  return static_cast<unsigned>(ceil_div(n, per_block));
}
/// A grid of kThreads a block for `threads` of each row, so that no thread divides to find its row: x has the
/// threads of a row, y rows, at most as many as a grid may have.
inline dim3 row_grid(std::int64_t rows, std::int64_t threads) {
  constexpr std::int64_t kMaxY = 65535;
  return {num_blocks(threads, kThreads), static_cast<unsigned>(rows < kMaxY ? rows : kMaxY)};
}
/// The element or column of the calling thread.
__device__ inline std::int64_t thread_index() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
/// The row of the calling half warp.
__device__ inline std::int64_t half_warp_index() { return thread_index() / kLanes; }

/// Returns `queue(std::type_identity<T>)`, where T is the C++ type of a validated storage dtype.
template <class Queue>
Status dispatch_dtype(DType dtype, const Queue& queue) {
  if (dtype == DType::bf16) return queue(std::type_identity<bf16>{});
  if (dtype == DType::f16) return queue(std::type_identity<f16>{});
  return queue(std::type_identity<float>{});
}
/// The same for a kernel launch; returns the launch's error, if any.
template <class Launch>
Status dispatch_launch(DType dtype, const Launch& launch) {
  return dispatch_dtype(dtype, [&]<class T>(std::type_identity<T> type) -> Status {
    launch(type);
    STRATA_CUDA_TRY(cudaGetLastError());
    return Status::ok();
  });
}

}  // namespace strata::dispatch

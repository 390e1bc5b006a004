#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The Status of a failed CUDA call; clears the thread's last error, so that the next call is not blamed for
/// it.
Status cuda_failure(cudaError_t error, const char* call, const char* file, int line);
/// Whether the context is lost: every later call fails, and device memory must not be trusted.
bool cuda_error_is_sticky(cudaError_t error) noexcept;

}  // namespace strata::detail

/// Returns from the enclosing function when a CUDA runtime call fails, with its text, place and error name.
/// After a kernel launch: STRATA_CUDA_TRY(cudaGetLastError()).
#define STRATA_CUDA_TRY(call)                                                              \
  do {                                                                                     \
    if (const cudaError_t strata_cuda_error = (call); strata_cuda_error != cudaSuccess)    \
      return ::strata::detail::cuda_failure(strata_cuda_error, #call, __FILE__, __LINE__); \
  } while (false)

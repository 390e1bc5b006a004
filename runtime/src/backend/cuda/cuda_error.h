#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Converts a failed CUDA call to a Status, and clears the thread's last error so that the next call does not
/// report it.
Status cuda_failure(cudaError_t error, const char* call, const char* file, int line);
/// Whether the context is lost: every later call fails, and the contents of device memory must not be used.
bool cuda_error_is_sticky(cudaError_t error) noexcept;

}  // namespace strata::detail

/// Returns from the enclosing function if a CUDA runtime call fails, naming the call, its location and the
/// error. After a kernel launch, use STRATA_CUDA_TRY(cudaGetLastError()).
#define STRATA_CUDA_TRY(call)                                                              \
  do {                                                                                     \
    if (const cudaError_t strata_cuda_error = (call); strata_cuda_error != cudaSuccess)    \
      return ::strata::detail::cuda_failure(strata_cuda_error, #call, __FILE__, __LINE__); \
  } while (false)

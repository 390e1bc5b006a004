#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include <strata/runtime/status.h>

#include "backend/cuda/cuda_error.h"

namespace strata::kernels::detail {

/// The status of an attention kernel whose request for `bytes` of shared memory per block returned `error`:
/// `unsupported` only if CUDA rejects the value itself as invalid. Any other error comes from an earlier
/// launch or from the device and says nothing about shared memory.
inline Status shared_memory_status(cudaError_t error, std::int64_t bytes) {
  if (error == cudaSuccess) return {};
  if (error != cudaErrorInvalidValue)
    return strata::detail::cuda_failure(error, "cudaFuncSetAttribute", __FILE__, __LINE__);
  (void)cudaGetLastError();
  return Status::error(Code::unsupported, "attention: heads of this size need " + std::to_string(bytes) +
                                              " bytes of shared memory, more than this GPU has");
}

}  // namespace strata::kernels::detail

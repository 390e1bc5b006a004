#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include <strata/runtime/status.h>

#include "cuda/cuda_error.h"

namespace strata::kernels::detail {

/// What it means that a kernel of attention was refused `bytes` of shared memory a block with `error`:
/// `unsupported` only where CUDA finds the value itself invalid. Any other error is one of an earlier launch
/// or of the device, and says nothing about shared memory.
inline Status shared_memory_status(cudaError_t error, std::int64_t bytes) {
  if (error == cudaSuccess) return {};
  if (error != cudaErrorInvalidValue)
    return strata::detail::cuda_failure(error, "cudaFuncSetAttribute", __FILE__, __LINE__);
  (void)cudaGetLastError();
  return Status::error(Code::unsupported, "attention: heads of this size take " + std::to_string(bytes) +
                                              " bytes of shared memory, more than this GPU has");
}

}  // namespace strata::kernels::detail

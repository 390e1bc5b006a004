#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace strata::test {

/// Makes the next call of `function` (its name, a string literal) fail with `error` and do nothing. Programs
/// that link fake_cudart.cpp get streams that are threads and device memory from the heap instead of the CUDA
/// runtime, so that the CUDA backend's own logic (event ring, call slots, errors) runs without a GPU.
void fail_next_cuda(const char* function, cudaError_t error);

/// The name that the device reports from here on: a string literal.
void name_gpu(const char* name);

/// While `lost` is true, queued host functions never run, as on a device that has failed. Everything else
/// continues.
void drop_host_functions(bool lost);

/// The number of registered ranges of host memory. A copy must not begin in one and end past it.
std::size_t registered_ranges();

}  // namespace strata::test

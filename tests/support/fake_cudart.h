#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace strata::test {

/// The next call of `function` (its name, a literal) fails with `error` and does nothing. A program that
/// links fake_cudart.cpp gets streams as threads and device memory from the heap instead of the CUDA runtime,
/// so that the CUDA backend's own logic (event ring, call slots, errors) runs where there is no GPU.
void fail_next_cuda(const char* function, cudaError_t error);

/// While `lost` is true, host functions that are queued never run, as on a device that has failed. Everything
/// else goes on.
void drop_host_functions(bool lost);

/// How many ranges of host memory are registered. No copy may begin in one and end past it.
std::size_t registered_ranges();

}  // namespace strata::test

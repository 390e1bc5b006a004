#pragma once

#include <memory>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/backend/cuda_backend_options.h>
#include <strata/runtime/backend/cuda_device.h>
#include <strata/runtime/status.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {

/// Creates a backend for one GPU. Device buffers are plain cudaMalloc slabs; pinned buffers are exact
/// mappings that `pool` touches and that are then registered. `pool` must outlive the backend. After a sticky
/// CUDA error every call returns that error. When a host call fails, later host calls of its stream are
/// skipped, but copies and kernels already queued still run. Errors: `unsupported` if there is no such GPU,
/// with cuda_status() as the reason.
Result<std::unique_ptr<Backend>> create_cuda_backend(const CudaBackendOptions& options, ThreadPool& pool);

}  // namespace strata

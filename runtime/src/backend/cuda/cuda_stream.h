#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/backend/backend.h>

namespace strata::detail {

/// The CUDA stream behind `stream`, for kernel launches by the thread that queues work on it; selects its
/// device on that thread. Call it again for each operation, which tells the backend that work was queued.
/// Errors: `invalid` for a stream of another backend; the error of a lost device.
Result<cudaStream_t> cuda_stream(Stream& stream);

}  // namespace strata::detail

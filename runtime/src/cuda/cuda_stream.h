#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/backend.h>

namespace strata::detail {

/// The CUDA stream behind `stream`: for kernel launches by its feeder, on whose thread its device is then the
/// current one. Tell the backend that work was queued by getting it again for each op. Errors: invalid for a
/// stream of another backend; that of a device that is lost.
Result<cudaStream_t> cuda_stream(Stream& stream);

}  // namespace strata::detail

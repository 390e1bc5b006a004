#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/backend.h>

namespace strata::detail {

/// The CUDA stream behind `stream`, which must come from the CUDA backend: for kernel launches by its feeder.
/// Tell the backend that work was queued by getting it again for each launch.
cudaStream_t cuda_stream(Stream& stream);

}  // namespace strata::detail

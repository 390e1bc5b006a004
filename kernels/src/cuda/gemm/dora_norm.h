#pragma once

#include <cuda_runtime_api.h>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

#include "adapters/dora_rows.h"

namespace strata::kernels::detail {

/// Queues the norms of the rows, which are of `dtype`.
Status launch_write_norms(const DoraRows& rows, DType dtype, cudaStream_t queue);

}  // namespace strata::kernels::detail

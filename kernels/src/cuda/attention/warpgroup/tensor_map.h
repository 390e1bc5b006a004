#pragma once

#include <cuda.h>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

#include "cuda/attention/warpgroup/tma.h"

namespace strata::kernels::detail {

/// Encodes the TMA descriptor of a matrix of 16-bit values; elements out of bounds read as zero. The calling
/// thread must have a current device.
Status make_tensor_map(const TmaTensor& matrix, DType dtype, CUtensorMap& map);

}  // namespace strata::kernels::detail

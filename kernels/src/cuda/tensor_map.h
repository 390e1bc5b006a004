#pragma once

#include <cuda.h>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

#include "cuda/tma.h"

namespace strata::kernels::detail {

/// What TMA is given of a matrix of 16-bit values; what is past its end is zero. The
/// calling thread has a device.
Status make_tensor_map(const TmaTensor& matrix, DType dtype, CUtensorMap& map);

}  // namespace strata::kernels::detail

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

#include "cuda/quant/weight_math.h"

namespace strata::kernels::detail {

/// Rows of one part of a panel.
struct PanelRows {
  PartData part;
  std::int64_t first = 0;   ///< value of the part with which the first row begins
  std::int64_t stride = 0;  ///< values from one row of the matrix to the next
  std::int64_t rows = 0, columns = 0;
};

/// Queues the dequantization of `rows` to `out`, `dtype` [rows.rows, rows.columns].
Status launch_dequantize(const PanelRows& rows, DType dtype, void* out, cudaStream_t queue);

}  // namespace strata::kernels::detail

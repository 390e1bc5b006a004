#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

#include "cuda/quant/weight_math.h"
#include "quant/dequantize_panel.h"

namespace strata::kernels::detail {

/// Rows of one part of a panel.
struct PanelRows {
  PartData part;
  std::int64_t first = 0;   ///< value of the part with which the first row begins
  std::int64_t stride = 0;  ///< values from one row of the matrix to the next
  std::int64_t rows = 0, columns = 0;
};

/// Queues the dequantization of a panel of a quantized matrix to `out`, `dtype` [panel.rows, panel.columns].
Status launch_dequantize_panel(const QuantizedMatrix& matrix, const std::byte* bytes, const Panel& panel,
                               DType dtype, std::byte* out, cudaStream_t queue);

/// Queues the dequantization of `rows` to `out`, `dtype` [rows.rows, rows.columns].
Status launch_dequantize(const PanelRows& rows, DType dtype, void* out, cudaStream_t queue);

}  // namespace strata::kernels::detail

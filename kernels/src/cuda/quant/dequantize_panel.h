#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

#include "cuda/experts/expert_tiles.h"
#include "cuda/quant/weight_math.h"
#include "quant/dequantize_panel.h"

namespace strata::kernels::detail {

/// Rows of one part of a panel.
struct PanelRows {
  PartData part;
  std::int64_t row = 0, column = 0;  ///< the value of the part with which the panel's rows begin
  std::int64_t rows = 0, columns = 0;
};

/// Queues the dequantization of a panel of a quantized matrix to `out`, `dtype` [panel.rows, panel.columns].
Status launch_dequantize_panel(const QuantizedMatrix& matrix, const std::byte* bytes, const Panel& panel,
                               DType dtype, std::byte* out, cudaStream_t queue);

/// Queues the dequantization of the matrices of `experts` from `bytes` on, of those that have rows, to `out`,
/// `dtype` [experts, rows, columns].
Status launch_dequantize_experts(const QuantizedMatrix& matrix, const std::byte* bytes,
                                 const ExpertOffsets& experts, DType dtype, std::byte* out,
                                 cudaStream_t queue);

}  // namespace strata::kernels::detail

#pragma once

#include <cstdint>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::kernels::detail {

/// A rectangle of a matrix.
struct Panel {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Writes the panel's values to `out`, `dtype` [panel.rows, panel.columns], rounded once.
void dequantize_panel(const QuantizedMatrix& matrix, const std::byte* bytes, const Panel& panel, DType dtype,
                      void* out, ThreadPool& pool);

}  // namespace strata::kernels::detail

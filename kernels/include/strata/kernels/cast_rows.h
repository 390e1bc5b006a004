#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Rows within a matrix whose rows may be longer: packed out of it, put back into it, or only cast.
struct CastRowsArgs {
  TensorView x;               ///< kept (embedding.h) [..., columns]
  TensorView y;               ///< f32, bf16 or f16, as many rows of as many columns, written; apart from x
  std::int64_t x_stride = 0;  ///< values from one row of x to the next, at least columns; 0: columns
  std::int64_t y_stride = 0;  ///< of y
};
/// y = x, rounded to nearest even where y has fewer bits; what lies between y's rows stays as it is.
Status cast_rows_async(Backend& backend, Stream& stream, const CastRowsArgs& args);
void cast_rows_host(const CastRowsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

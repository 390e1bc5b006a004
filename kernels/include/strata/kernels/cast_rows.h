#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Casts rows between two dtypes. Either side may be strided, that is, part of a matrix with longer rows, so
/// the op also packs and unpacks columns of a matrix.
struct CastRowsArgs {
  TensorView x;               ///< stored dtype (embedding.h) [..., columns]
  TensorView y;               ///< f32, bf16 or f16, same rows and columns, written; must not overlap x
  std::int64_t x_stride = 0;  ///< values from one row of x to the next, at least columns; 0: columns
  std::int64_t y_stride = 0;  ///< the same for y
  bool adds = false;          ///< whether y += x, and y is read
};
/// y = x, or y + x in f32, rounded to nearest even if y has fewer bits. Memory between the rows of y is not
/// changed.
Status cast_rows_async(Backend& backend, Stream& stream, const CastRowsArgs& args);
void cast_rows_host(const CastRowsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

#include <strata/kernels/cast_rows.h>

#include <utility>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/elementwise/launches.h"

namespace strata::kernels {
namespace {

using ops::row_count;
using ops::row_length;

/// The memory range from the first value of the rows to the last, including the gaps between rows.
TensorView strided_extent(const TensorView& rows, std::int64_t stride) {
  if (stride == 0 || rows.n_elems() == 0) return rows;
  return {rows.data, Shape{(row_count(rows) - 1) * stride + row_length(rows)}, rows.dtype};
}

}  // namespace

Status cast_rows_async(Backend& backend, Stream& stream, const CastRowsArgs& a) {
  ops::Check check("cast_rows", "x", a.x);
  check.require(is_stored_dtype(a.y.dtype), "y is ", to_string(a.y.dtype), "; it must be f32, bf16 or f16")
      .rows("y", a.y, a.y.dtype, row_count(a.x), row_length(a.x));
  for (const auto& [name, stride] : {std::pair{"x", a.x_stride}, std::pair{"y", a.y_stride}})
    check.require(stride == 0 || stride >= row_length(a.x), name, "_stride is ", stride,
                  "; it must be 0 or at least the row length ", row_length(a.x));
  STRATA_TRY(check.status());
  constexpr ops::OpImpl<CastRowsArgs> op = {"cast_rows", &cast_rows_host, &cuda::cast_rows};
  return ops::enqueue(backend, stream, op, a, {strided_extent(a.x, a.x_stride)},
                      {strided_extent(a.y, a.y_stride)});
}

}  // namespace strata::kernels

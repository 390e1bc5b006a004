#pragma once

#include <strata/kernels/values/column_scales.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = x, with each part of a row's columns times its factor (Falcon-H1's multipliers). Both have the same
/// dtype (f32, bf16 or f16; see embedding.h), and y may be x. The op is its own derivative.
struct ScalePartsArgs {
  TensorView x;  ///< [..., scales.all()], T rows
  TensorView y;  ///< as x, written
  ColumnScales scales;
};
Status scale_parts_async(Backend& backend, Stream& stream, const ScalePartsArgs& args);
void scale_parts_host(const ScalePartsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

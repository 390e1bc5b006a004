#pragma once

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// All tensors of one op have the same number of elements, in f32. An output may be one of the inputs.

/// y = gelu(x), tanh form (Hendrycks & Gimpel 2016).
struct GeluForwardArgs {
  TensorView x;
  TensorView y;  ///< written
};
Status gelu_forward_async(Backend& backend, Stream& stream, const GeluForwardArgs& args);
void gelu_forward_host(const GeluForwardArgs& args, ThreadPool& pool);

/// dx = dy * gelu'(x).
struct GeluBackwardArgs {
  TensorView x;
  TensorView dy;
  TensorView dx;  ///< written
};
Status gelu_backward_async(Backend& backend, Stream& stream, const GeluBackwardArgs& args);
void gelu_backward_host(const GeluBackwardArgs& args, ThreadPool& pool);

/// y = a + b.
struct AddArgs {
  TensorView a;
  TensorView b;
  TensorView y;  ///< written
};
Status add_async(Backend& backend, Stream& stream, const AddArgs& args);
void add_host(const AddArgs& args, ThreadPool& pool);

/// Every element of x becomes `value`.
struct FillArgs {
  TensorView x;  ///< written
  float value = 0.0f;
};
Status fill_async(Backend& backend, Stream& stream, const FillArgs& args);
void fill_host(const FillArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

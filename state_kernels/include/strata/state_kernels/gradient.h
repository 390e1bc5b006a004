#pragma once

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

/// Ops on gradients in device memory. Each processes a range of one tensor with the bits of cpuopt, except
/// that a NaN stored in f32 has the device's bits. Ranges begin at a multiple of kNormPartialElems in their
/// tensor. Errors of all ops: `invalid`, naming the argument.
namespace strata::state_kernels {

/// acc += g, or acc = g if `first` is true.
struct AccumulateArgs {
  TensorView acc;  ///< f32, updated
  TensorView g;    ///< f32, bf16 or f16, as many elements as acc
  bool first = false;
};
Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& args);
void accumulate_host(const AccumulateArgs& args, ThreadPool& pool);

/// The partials of a gradient norm: simd::square_sum_partials().
struct SquareSumPartialsArgs {
  TensorView x;         ///< f32, bf16 or f16
  TensorView partials;  ///< f64, simd::norm_partial_count(n) values in device or pinned memory, written
};
Status square_sum_partials_async(Backend& backend, Stream& stream, const SquareSumPartialsArgs& args);
void square_sum_partials_host(const SquareSumPartialsArgs& args, ThreadPool& pool);

}  // namespace strata::state_kernels

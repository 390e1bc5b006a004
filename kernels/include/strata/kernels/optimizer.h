#pragma once

#include <strata/cpuopt/adamw.h>
#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// One AdamW step in place where the states live, by the same body as cpuopt::adamw_update, hence the same
/// bits.
struct AdamWArgs {
  cpuopt::OptimizerParams params;
  TensorView p;  ///< f32, n elements, updated
  TensorView g;  ///< f32, n elements
  TensorView m;  ///< f32, n elements, updated
  TensorView v;  ///< f32, n elements, updated
  TensorView
      grad_factor;  ///< f32, 1 value, read in stream order in place of params.grad_factor; rank 0 for none
};
Status adamw_async(Backend& backend, Stream& stream, const AdamWArgs& args);
void adamw_host(const AdamWArgs& args, ThreadPool& pool);

/// acc += g.
struct AccumulateArgs {
  TensorView acc;  ///< f32, updated
  TensorView g;    ///< f32, as many elements
};
Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& args);
void accumulate_host(const AccumulateArgs& args, ThreadPool& pool);

/// The leaves of a gradient norm; see cpuopt::square_sum_leaves.
struct SquareSumLeavesArgs {
  TensorView x;       ///< f32: a tensor, or a slice that begins at a multiple of 4096 elements
  TensorView leaves;  ///< f64, cpuopt::norm_leaves(n) values, written
};
Status square_sum_leaves_async(Backend& backend, Stream& stream, const SquareSumLeavesArgs& args);
void square_sum_leaves_host(const SquareSumLeavesArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

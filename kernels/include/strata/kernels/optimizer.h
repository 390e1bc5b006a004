#pragma once

#include <strata/cpuopt/update.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

/// Ops on gradients and optimizer states that are in device memory. Each op processes a range of one tensor
/// with the bits of cpuopt, except that a NaN stored in f32 has the device's bits. Ranges begin at a multiple
/// of kNormPartialElems in their tensor. Errors of all ops: `invalid`, naming the argument.
namespace strata::kernels {

/// One step of any optimizer in place: cpuopt::update_block(). For lamb it updates only the moments.
struct UpdateArgs {
  cpuopt::UpdateStep step;
  cpuopt::UpdateBlock block;      ///< in device memory
  std::int64_t n = 0;             ///< elements
  cpuopt::RoundingNoise noise{};  ///< of the tensor and the high bits of the elements' indices
};
Status update_async(Backend& backend, Stream& stream, const UpdateArgs& args);
void update_host(const UpdateArgs& args, ThreadPool& pool);

/// The partials of lamb's two norms, from the moments as they are stored: cpuopt::lamb_partials_block(). Each
/// span has norm_partial_count(n) f64 values in device or pinned memory and is written.
struct LambPartialsArgs {
  cpuopt::UpdateStep step;
  cpuopt::UpdateBlock block;
  std::int64_t n = 0;
  double* master_partials = nullptr;
  double* direction_partials = nullptr;
};
Status lamb_partials_async(Backend& backend, Stream& stream, const LambPartialsArgs& args);
void lamb_partials_host(const LambPartialsArgs& args, ThreadPool& pool);

/// lamb's second pass: cpuopt::lamb_apply_block().
struct LambApplyArgs {
  cpuopt::UpdateStep step;
  cpuopt::UpdateBlock block;
  std::int64_t n = 0;
  const float* trust = nullptr;  ///< 1 value in device or pinned memory, read in stream order
};
Status lamb_apply_async(Backend& backend, Stream& stream, const LambApplyArgs& args);
void lamb_apply_host(const LambApplyArgs& args, ThreadPool& pool);

/// acc += g, or acc = g if `first` is true.
struct AccumulateArgs {
  TensorView acc;  ///< f32, updated
  TensorView g;    ///< f32, bf16 or f16, as many elements as acc
  bool first = false;
};
Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& args);
void accumulate_host(const AccumulateArgs& args, ThreadPool& pool);

/// The partials of a gradient norm: cpuopt::square_sum_partials().
struct SquareSumPartialsArgs {
  TensorView x;         ///< f32, bf16 or f16
  TensorView partials;  ///< f64, cpuopt::norm_partial_count(n) values in device or pinned memory, written
};
Status square_sum_partials_async(Backend& backend, Stream& stream, const SquareSumPartialsArgs& args);
void square_sum_partials_host(const SquareSumPartialsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels

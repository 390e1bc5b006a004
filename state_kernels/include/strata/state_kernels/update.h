#pragma once

#include <cstdint>

#include <strata/cpuopt/update.h>
#include <strata/runtime/backend/backend.h>

/// Optimizer steps over states in device memory. Each op processes a range of one tensor with the bits of
/// cpuopt, except that a NaN stored in f32 has the device's bits. Ranges begin at a multiple of
/// kNormPartialElems in their tensor. Errors of all ops: `invalid`, naming the argument.
namespace strata::state_kernels {

/// One step of any optimizer in place: cpuopt::update_block(). For lamb it updates only the moments.
struct UpdateArgs {
  cpuopt::UpdateStep step;
  cpuopt::UpdateBlock block;      ///< in device memory
  std::int64_t n = 0;             ///< elements
  cpuopt::RoundingNoise noise{};  ///< the noise of the tensor and of the high bits of the elements' indices
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

/// The moving average of the masters: cpuopt::update_ema_block(). Moments and gradient are not read.
struct EmaArgs {
  float weight = 0;
  cpuopt::UpdateBlock block;
  std::int64_t n = 0;
};
Status ema_async(Backend& backend, Stream& stream, const EmaArgs& args);
void ema_host(const EmaArgs& args, ThreadPool& pool);

}  // namespace strata::state_kernels

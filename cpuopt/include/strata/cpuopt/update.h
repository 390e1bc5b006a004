#pragma once

#include <cstdint>

#include <strata/cpuopt/master.h>
#include <strata/cpuopt/moments.h>
#include <strata/cpuopt/optimizer.h>
#include <strata/runtime/dtype.h>

namespace strata::cpuopt {

/// Parameters, their states and their gradient as they lie in memory: a range of one tensor that begins at a
/// multiple of kNormPartialElems, at any address. Moments that the optimizer does not keep are null.
struct UpdateBlock {
  MasterLayout layout = MasterLayout::f32;
  StateFormat states = StateFormat::fp32;
  DType grad = DType::f32;  ///< of `g`: f32, bf16 or f16
  void* param = nullptr;
  void* master = nullptr;
  Moment m{}, v{};
  const void* g = nullptr;
  std::uint32_t index = 0;  ///< of the first element in its tensor, the low 32 bits

  /// From element `offset` on.
  UpdateBlock at(std::int64_t offset) const noexcept;
};

/// What one call of a step does. Prepared once, then handed to every thread.
struct UpdateStep {
  UpdateScalars<float> scalars{};
  Optimizer optimizer = Optimizer::adamw;
  bool momentum = false, nesterov = false;
};
UpdateStep make_update_step(const OptimizerParams& params) noexcept;

/// One step over a block, in one pass over memory: unscale and clip, decay, update, and the 16-bit
/// parameter. Elementwise, with int8 blocks and random bits in tensor coordinates: any split at multiples of
/// kNormPartialElems gives the same bits, and so does every instruction set. Not threaded: callers hand
/// disjoint blocks to their threads. NaN and infinity pass through; the gradient norm is what finds them.
/// `noise` is read by the formats that round at random. Of lamb: the moments alone.
void update_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                  RoundingNoise noise) noexcept;

/// lamb's first pass: the moments by update_block(), then lamb_partials_block().
void lamb_moments_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n, RoundingNoise noise,
                        double* master_partials, double* direction_partials) noexcept;
/// The partials (norm.h) of the squares of the masters and of the directions, from the moments as they are
/// stored.
void lamb_partials_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                         double* master_partials, double* direction_partials) noexcept;
/// How far a tensor goes along its direction: the ratio of the two norms; 1 where either is 0.
float lamb_trust_ratio(double master_square_sum, double direction_square_sum) noexcept;
/// lamb's second pass: p -= lr * trust * direction. Gradients are not read.
void lamb_apply_block(const UpdateStep& step, float trust, const UpdateBlock& block, std::int64_t n) noexcept;

}  // namespace strata::cpuopt

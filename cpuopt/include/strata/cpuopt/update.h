#pragma once

#include <cstdint>

#include <strata/cpuopt/moments.h>
#include <strata/cpuopt/update_block.h>

namespace strata::cpuopt {

/// One step over a block in one pass over memory: unscaling and clipping, decay, update, and the write of the
/// 16-bit parameter. It is elementwise, and int8 blocks and random bits follow tensor coordinates, so any
/// split at multiples of kNormPartialElems and every instruction set give the same bits. Not threaded:
/// callers pass disjoint blocks from their threads. NaN and infinity pass through; they are detected in the
/// gradient norm. `noise` is read only by formats with stochastic rounding. For lamb it updates only the
/// moments.
void update_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                  RoundingNoise noise) noexcept;

/// First pass of lamb: updates the moments with update_block(), then calls lamb_partials_block().
void lamb_moments_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n, RoundingNoise noise,
                        double* master_partials, double* direction_partials) noexcept;
/// Writes the norm partials (norm.h) of the masters and of lamb's directions, which are computed from the
/// moments as they are stored.
void lamb_partials_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                         double* master_partials, double* direction_partials) noexcept;
/// lamb's trust ratio of a tensor: the norm of the masters over the norm of the directions; 1 if either is 0.
float lamb_trust_ratio(double master_square_sum, double direction_square_sum) noexcept;
/// Second pass of lamb: p -= lr * trust * direction. Gradients are not read.
void lamb_apply_block(const UpdateStep& step, float trust, const UpdateBlock& block, std::int64_t n) noexcept;

/// The exponential moving average of the masters (Polyak & Juditsky 1992, with a decay): ema += weight *
/// (master - ema), elementwise; 1 copies the masters. It is called after the step, of which it is no part:
/// `block.ema` is written, param and master are read.
void update_ema_block(float weight, const UpdateBlock& block, std::int64_t n) noexcept;

}  // namespace strata::cpuopt

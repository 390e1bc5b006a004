#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/simd/norm.h>
#include <strata/cpuopt/update.h>
#include <strata/runtime/threads/thread_pool.h>

#include <strata/session/state_costs.h>
#include <strata/session/state_plan.h>

#include "plan/chunk_tables.h"

namespace strata::detail {

/// Constants of one step, the same for all chunks.
struct StepConstants {
  explicit StepConstants(const StatePlan& plan) : by_rule(plan.rules.size()) {}
  std::vector<cpuopt::UpdateStep> by_rule;  ///< indexed like StatePlan::rules
  std::uint64_t rounding_seed = 0;
  std::int64_t step = 0;
};

/// Norms of the tensors of one chunk for an optimizer that needs them (LAMB). A chunk's update writes only
/// the norms of its own tensors, and nothing else reads them, so they impose no order on queued work.
struct TensorNorms {
  double* master_partials = nullptr;     ///< `n`, numbered within the chunk
  double* direction_partials = nullptr;  ///< `n`, right after those
  std::int64_t n = 0;
  const std::int64_t* first_in_chunk = nullptr;  ///< ChunkTables::first_in_chunk
  float* trust = nullptr;                        ///< the trust ratio of each tensor of the layout

  std::int64_t index(const TensorBlock& block) const {
    return first_in_chunk[block.tensor] + block.at / simd::kNormPartialElems;
  }
};

/// The request of a trainer for a tensor. Null: the parameter, or the gradient, is a payload of the chunk.
struct TrainerTensor {
  std::byte* param = nullptr;
  const std::byte* grad = nullptr;
  DType grad_dtype = DType::f32;
  bool is_updated = false;
};

/// A queued update of one chunk.
struct ChunkUpdate {
  cpuopt::UpdateBlock chunk;
  cpuopt::UpdateBlock old;  ///< addresses of the same states in the undo log; null without one
  std::span<const TensorBlock> blocks;
  const StepConstants* step = nullptr;
  const StatePlan* plan = nullptr;
  TensorNorms norms;
  UndoAction undo = UndoAction::none;
  /// Indexed by tensor of the layout; null: all are updated, and parameters and gradients are payloads of the
  /// chunk.
  const TrainerTensor* of_trainer = nullptr;

  bool updates(const TensorBlock& block) const noexcept {
    return of_trainer == nullptr || of_trainer[block.tensor].is_updated;
  }
};
/// The step's constants for a block.
const cpuopt::UpdateStep& step_of(const ChunkUpdate& update, const TensorBlock& block);
/// Does the whole update on the CPU.
void run_chunk_update(const ChunkUpdate& update, ThreadPool& pool);

/// One block of an update, on whichever device it runs.
struct BlockUpdate {
  const cpuopt::UpdateStep& step;
  cpuopt::UpdateBlock block;
  cpuopt::RoundingNoise noise;
};
BlockUpdate block_update(const ChunkUpdate& update, const TensorBlock& block);
/// Computes the trust ratio of every tensor of which the chunk has blocks from all of its norm partials.
void compute_trust_ratios(const ChunkUpdate& update);

/// LAMB on the CPU in two passes, between which ranks that share a tensor add up its norm partials. The first
/// one writes partials of this rank's blocks and zero for all others.
void run_lamb_moments(const ChunkUpdate& update, ThreadPool& pool);
void run_lamb_apply(const ChunkUpdate& update, ThreadPool& pool);
void clear_norm_partials(const ChunkUpdate& update);
/// The moving average of the chunk's parameters begins with these.
void run_ema_start(const ChunkUpdate& update, ThreadPool& pool);

}  // namespace strata::detail

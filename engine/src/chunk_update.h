#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <strata/cpuopt/update.h>
#include <strata/runtime/thread_pool.h>

#include "chunk_tables.h"

namespace strata {

/// One step's constants: the same for all chunks.
struct StepConstants {
  std::array<cpuopt::UpdateStep, kMaxUpdateRules> by_rule{};  ///< of RunPlan::rules
  std::uint64_t rounding_seed = 0;
  std::int64_t step = 0;
};

/// Where an optimizer that steps by whole tensors keeps their norms. A chunk's update writes those of its own
/// tensors alone and nobody else reads them, so no queued work has to be ordered by them.
struct TensorNorms {
  double* master_partials = nullptr;  ///< as the gradient's norm partials are numbered
  double* direction_partials = nullptr;
  float* trust = nullptr;  ///< by tensor of the layout
};

/// What an update has to do with the undo log, which holds a chunk's states as they were.
enum class UndoAction : std::uint8_t {
  none,
  save,                  ///< the states are written to it, then updated
  rollback_then_update,  ///< they are taken from it, then updated
  rollback,              ///< they are taken from it, and that is all
};

/// A queued update of one chunk.
struct ChunkUpdate {
  cpuopt::UpdateBlock chunk;
  cpuopt::UpdateBlock old;  ///< the same places in the undo log; null without one
  std::span<const TensorBlock> blocks;
  const StepConstants* step = nullptr;
  const RunPlan* plan = nullptr;
  TensorNorms norms;
  UndoAction undo = UndoAction::none;
};
/// All of it, by the CPU.
void run_chunk_update(const ChunkUpdate& update, ThreadPool& pool);

/// A block of it, for whoever updates it.
struct BlockUpdate {
  const cpuopt::UpdateStep& step;
  cpuopt::UpdateBlock block;
  cpuopt::RoundingNoise noise;
};
BlockUpdate block_update(const ChunkUpdate& update, const TensorBlock& block);
/// The trust of every tensor of the chunk, from its norms' partials.
void compute_trust_ratios(const ChunkUpdate& update);

}  // namespace strata

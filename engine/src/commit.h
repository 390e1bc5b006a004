#pragma once

#include "chunk_update.h"
#include "machine.h"

namespace strata {

/// The end of a step: adds up the norm, then updates every chunk where its states live, in the order in which
/// the next forward needs them. One thread; allocates nothing.
class Commit {
 public:
  explicit Commit(Machine& machine) : machine_(machine) {}

  /// Waits until all gradients have landed and their leaves are taken. The global norm of the mean gradient
  /// over `micro_batches`, which may be no finite number.
  Result<double> gradient_norm(std::int32_t micro_batches);
  /// `diverged`, naming the first tensor whose gradient is not finite.
  Status not_finite() const;
  /// One step of the optimizer with `params` (grad_factor included) over all chunks. Returns when all updates
  /// are queued.
  Status run(const cpuopt::OptimizerParams& params, std::int32_t first_position);
  /// Whether the last run() queued any update before it failed.
  bool changed_states() const noexcept { return changed_states_; }

 private:
  Status update(ChunkId chunk);
  Status fetch_ahead(ChunkId chunk);
  Machine& machine_;
  StepConstants step_;  // queued updates read it; a step ends when they are done
  bool changed_states_ = false;
};

}  // namespace strata

#pragma once

#include <vector>

#include <strata/session/pass_schedule.h>
#include <strata/session/speculation_policy.h>

#include "step/queue_update.h"

namespace strata::detail {

/// Updates made while backward still runs, as if the norm were known and clipped nothing. The undo log holds
/// what they overwrite, so a wrong guess costs time but changes no bits. In a step, chunks are updated as
/// they become ready. Once the norm is known, either the guess was right and the updates are valid, or the
/// chunks are updated again (Commit), or everything is rolled back. Not thread-safe; allocates nothing after
/// construction.
class Speculation {
 public:
  Speculation(StateContext& context, const PassSchedule& schedule);

  /// Begins a step. `guess` are the optimizer's parameters if nothing is clipped. In mode `auto` the policy
  /// decides whether the step speculates.
  Status begin(const cpuopt::OptimizerParams& guess);
  /// Updates a chunk whose gradient is accumulated and whose parameters are not read again in this step.
  Status update(ChunkId chunk);
  /// Prefetches states for the coming updates as far as there is room. Returns true if all of them are
  /// covered.
  Result<bool> prefetch_states();
  /// Whether `chunk` is or was updated speculatively in this step.
  bool covers(ChunkId chunk) const noexcept { return active_ && context_.plan().undo.covers(chunk); }
  /// Whether `chunk` has been updated in this step.
  bool has_updated(ChunkId chunk) const noexcept { return updated_[chunk]; }
  std::int32_t n_updated() const noexcept { return n_updated_; }
  /// Whether the updates made are those that `params` require.
  bool guess_matches(const cpuopt::OptimizerParams& params) const noexcept {
    return params.grad_factor == guess_.grad_factor;
  }
  /// Ends the step's speculation: its updates are valid, or are to be redone, for which nvme returns to its
  /// snapshots. Mode auto learns from the result.
  void resolve(bool right) noexcept;
  /// Records the duration of the step, from which mode auto learns.
  void record_step(double seconds) noexcept { choice_.record_step(active_, seconds); }
  /// Restores the states from before the step.
  Status roll_back();

 private:
  bool should_speculate() const noexcept;

  StateContext& context_;
  cpuopt::OptimizerParams guess_;
  StepConstants step_;
  bool active_ = false;
  std::vector<ChunkId> order_;     // covered chunks, in the order in which they become ready
  std::size_t fetched_ = 0;        // index into order_: end of what is prefetched
  std::vector<bool> snapshotted_;  // whether nvme holds a snapshot of each chunk's states
  std::vector<bool> updated_;      // whether each chunk's update is queued
  std::int32_t n_updated_ = 0;
  SpeculationPolicy choice_;
  std::uint64_t steps_ = 0;
};

}  // namespace strata::detail

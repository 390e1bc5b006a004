#pragma once

#include <strata/session/pass_schedule.h>

#include "ranks/model_reduction.h"
#include "step/queue_update.h"
#include "step/speculation.h"

namespace strata::detail {

/// The end of a trainee's step: computes the gradient norm, then updates every chunk where its states live,
/// in the order in which the next forward needs them, either all at once or each when that forward gets to
/// it. Not thread-safe; allocates nothing after construction.
class Commit {
 public:
  /// `schedule` is that of the trainee's step.
  Commit(StateContext& context, Speculation& speculation, const PassSchedule& schedule);
  ~Commit();  ///< waits for queued updates; pending ones are lost

  /// Waits until all gradients are accumulated and their norm partials are computed.
  Status wait_for_gradients();
  /// Returns the norm of the trainee's mean gradient over the step's micro-batches, still multiplied by
  /// `loss_scale`; it may be not finite. All norm partials must be complete.
  /// With ranks that share a copy of the model, of all of them, as `flags` are afterwards.
  Result<double> gradient_norm(double loss_scale, std::uint32_t& flags);
  /// The norm of each parameter's part of that gradient, not divided by anything, by registration order; 0
  /// for those that the trainee does not update.
  void gradient_norms(std::span<double> norms) const;
  /// Returns `diverged`, naming the first tensor whose gradient is not finite.
  Status non_finite_error();

  /// Makes a step of the optimizer with `params` (including grad_factor) pending for all chunks.
  Status begin(const cpuopt::OptimizerParams& params);
  bool is_pending() const noexcept { return next_ < schedule_.commits.size(); }
  bool is_pending(ChunkId chunk) const noexcept { return next_ < until_[chunk]; }
  /// Queues the pending updates up to that of `chunk`, and prefetches the states of chunks after it. After a
  /// failure the update stays pending.
  Status advance_to(ChunkId chunk) { return is_pending() ? advance(until_[chunk]) : Status::ok(); }
  /// Queues all pending updates, during a pass.
  Status advance_to_end() { return advance(schedule_.commits.size()); }
  /// Queues all pending updates, between passes.
  Status finish();
  /// Discards all pending updates.
  void cancel() noexcept { next_ = schedule_.commits.size(); }
  /// Prefetches states for the coming commit during backward, as far as there is room.
  Status prefetch_states();
  /// Called before a gradient is computed, possibly again: prefetch_states() starts anew.
  void restart_prefetch() noexcept { fetched_early_ = 0; }
  /// Whether any update of the last step has been queued.
  bool changed_states() const noexcept { return changed_states_; }

 private:
  double synthetic_norm(double loss_scale, double share) noexcept;
  Status advance(std::size_t end);
  Status commit_next();
  Status fetch_ahead();

  StateContext& context_;
  Speculation& speculation_;
  const PassSchedule& schedule_;
  // For each chunk, the end in the commit order of the updates that must precede its use; 0: it is not the
  // trainee's.
  std::vector<std::size_t> until_;
  std::vector<UndoAction> undo_;        // the undo action of each chunk's pending update
  std::vector<bool> done_;              // whether each chunk is queued, or its speculative update is valid
  std::size_t next_;                    // next update in the commit order
  std::size_t fetched_ = 0;             // end in the commit order of what is prefetched
  std::size_t fetched_early_ = 0;       // the same, for prefetch_states()
  std::int64_t n_synthetic_norms_ = 0;  // number of norms made up for dry runs and forecasts
  StepConstants step_;                  // read by queued updates, which complete before the next begin()
  ModelReduction model_;
  bool changed_states_ = false;
};

}  // namespace strata::detail

#pragma once

#include "queue_update.h"
#include "schedule.h"
#include "speculation.h"

namespace strata {

/// The end of a step: adds up the norm, then updates every chunk where its states live, in the order in which
/// the next forward needs them: all at once, or each when that forward comes to it. One thread; allocates
/// nothing after construction.
class Commit {
 public:
  Commit(ExecutionContext& context, Speculation& speculation, const ProgramSchedule& schedule);
  ~Commit();  ///< waits for updates that are queued; those that are not are lost

  /// Waits until all gradients have landed and their norm partials are computed. The global norm of the mean
  /// gradient over `micro_batches`, which may be no finite number.
  Result<double> gradient_norm(std::int32_t micro_batches, double loss_scale);
  /// `diverged`, naming the first tensor whose gradient is not finite.
  Status non_finite_error() const;

  /// A step of the optimizer with `params` (grad_factor included) over all chunks is due.
  Status begin(const cpuopt::OptimizerParams& params);
  bool is_pending() const noexcept { return next_ < schedule_.commits.size(); }
  /// Queues what is due up to `chunk`. Reads the states of chunks after it meanwhile. What fails stays due.
  Status advance_to(ChunkId chunk) { return is_pending() ? advance(until_[chunk]) : Status::ok(); }
  /// Queues all that is due, within a pass.
  Status advance_to_end() { return advance(schedule_.commits.size()); }
  /// The same between passes.
  Status finish();
  /// Nothing is due any more.
  void cancel() noexcept { next_ = schedule_.commits.size(); }
  /// Begins to read states for the commit to come, in so far as there is room: while backward runs.
  Status prefetch_states();
  /// A gradient is about to be computed, perhaps once more: states are read early again.
  void restart_prefetch() noexcept { fetched_early_ = 0; }
  /// Whether any update of the last step has been queued.
  bool changed_states() const noexcept { return changed_states_; }

 private:
  double synthetic_norm(double loss_scale) noexcept;
  Status advance(std::size_t end);
  Status commit_next();
  Status fetch_ahead();

  ExecutionContext& context_;
  Speculation& speculation_;
  const ProgramSchedule& schedule_;
  std::vector<std::size_t> until_;      // of the order, before a chunk is used; 0: it is frozen
  std::vector<UndoAction> undo_;        // by chunk: what is due of it
  std::vector<bool> done_;              // by chunk: queued, or what was speculated stands
  std::size_t next_;                    // in the order
  std::size_t fetched_ = 0;             // in the order: begun to be read
  std::size_t fetched_early_ = 0;       // the same, under backward
  std::int64_t n_synthetic_norms_ = 0;  // norms made up for a plan or a forecast
  StepConstants step_;                  // queued updates read it; a step ends when they are done
  bool changed_states_ = false;
};

}  // namespace strata

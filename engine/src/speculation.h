#pragma once

#include <vector>

#include "speculation_policy.h"
#include "queue_update.h"
#include "schedule.h"

namespace strata {

/// Updates that are made while backward still runs, as if the norm were known and clipped nothing. The undo
/// log holds what they replaced, so that a wrong guess costs time and no bits. A step begins, its chunks are
/// updated as they become ready, and once the norm is known the guess stands, or its chunks are done again
/// (Commit), or all is rolled back. One thread; allocates nothing after construction.
class Speculation {
 public:
  Speculation(ExecutionContext& context, const ProgramSchedule& schedule);

  /// A step whose update would be by `guess` if nothing were clipped. In mode `auto` the last steps decide
  /// whether it speculates.
  Status begin(const cpuopt::OptimizerParams& guess);
  /// The chunk's gradient has landed and its parameters are not read again in this step.
  Status update(ChunkId chunk);
  /// Begins to read states for the updates to come, in so far as there is room. True when all are begun.
  Result<bool> prefetch_states();
  /// Whether `chunk` is to be updated in this step, or has been.
  bool covers(ChunkId chunk) const noexcept { return active_ && context_.plan.undo.covers(chunk); }
  /// Whether `chunk` has been updated in this step.
  bool has_updated(ChunkId chunk) const noexcept { return updated_[chunk]; }
  std::int32_t n_updated() const noexcept { return n_updated_; }
  /// Whether what was made is what `params` ask for.
  bool guess_matches(const cpuopt::OptimizerParams& params) const noexcept {
    return params.grad_factor == guess_.grad_factor;
  }
  /// What was made stands, or is to be redone: then what nvme holds is again what it was. auto learns from
  /// it.
  void resolve(bool right) noexcept;
  /// How long the step took; mode auto learns from it.
  void record_step(double seconds) noexcept { choice_.record_step(active_, seconds); }
  /// The states are again what they were before the step.
  Status roll_back();

 private:
  bool should_speculate() const noexcept;

  ExecutionContext& context_;
  cpuopt::OptimizerParams guess_;
  StepConstants step_;
  bool active_ = false;
  std::vector<ChunkId> order_;     // of the chunks that are covered: in which they become ready
  std::size_t fetched_ = 0;        // in the order
  std::vector<bool> snapshotted_;  // what nvme holds is guarded
  std::vector<bool> updated_;      // queued
  std::int32_t n_updated_ = 0;
  SpeculationPolicy choice_;
  std::uint64_t steps_ = 0;
};

}  // namespace strata

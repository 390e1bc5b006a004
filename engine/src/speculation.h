#pragma once

#include <vector>

#include "mode_choice.h"
#include "queue_update.h"
#include "schedule.h"

namespace strata {

/// Updates that are made while backward still runs, as if the norm were known and clipped nothing. The undo
/// log holds what they replaced, so that a wrong guess costs time and no bits. A step begins, its chunks are
/// updated as they become ready, and once the norm is known the guess stands, or its chunks are done again
/// (Commit), or all is rolled back. One thread; allocates nothing after construction.
class Speculation {
 public:
  Speculation(Machine& machine, const PassSchedule& schedule);

  /// A step whose update would be by `guess` if nothing were clipped. In mode `auto` the last steps decide
  /// whether it speculates.
  Status begin(const cpuopt::OptimizerParams& guess);
  /// The chunk's gradient has landed and its parameters are not read again in this step.
  Status update(ChunkId chunk);
  /// Begins to read states for the updates to come, in so far as there is room. True when all are begun.
  Result<bool> fetch_early();
  /// Whether `chunk` is to be updated in this step, or has been.
  bool takes(ChunkId chunk) const noexcept { return active_ && machine_.plan.undo.covers(chunk); }
  /// Whether `chunk` has been updated in this step.
  bool made(ChunkId chunk) const noexcept { return made_[chunk]; }
  std::int32_t n_made() const noexcept { return n_made_; }
  /// Whether what was made is what `params` ask for.
  bool is_right(const cpuopt::OptimizerParams& params) const noexcept {
    return params.grad_factor == guess_.grad_factor;
  }
  /// What was made stands, or is to be redone: then what nvme holds is again what it was. auto learns from
  /// it.
  void end(bool right) noexcept;
  /// How long the step took; mode auto learns from it.
  void took(double seconds) noexcept { choice_.took(active_, seconds); }
  /// The states are again what they were before the step.
  Status roll_back();

 private:
  bool is_worth_it() const noexcept;

  Machine& machine_;
  cpuopt::OptimizerParams guess_;
  StepConstants step_;
  bool active_ = false;
  std::vector<ChunkId> order_;  // of the chunks that are covered: in which they become ready
  std::size_t fetched_ = 0;     // in the order
  std::vector<bool> begun_;     // what nvme holds is guarded
  std::vector<bool> made_;      // queued
  std::int32_t n_made_ = 0;
  ModeChoice choice_;
  std::uint64_t steps_ = 0;
};

}  // namespace strata

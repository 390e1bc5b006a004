#include "step/speculation.h"

#include <algorithm>

namespace strata::detail {

Speculation::Speculation(StateContext& context, const PassSchedule& schedule)
    : context_(context),
      step_(context.plan()),
      snapshotted_(context.plan().layout.n_chunks(), false),
      updated_(context.plan().layout.n_chunks(), false) {
  for (const auto& [position, chunk] : schedule.ready)
    if (context.plan().undo.covers(chunk)) order_.push_back(chunk);
}

bool Speculation::should_speculate() const noexcept {
  if (context_.plan().options.step_mode != StepMode::automatic) return true;
  if (context_.synthetic() && context_.synthetic()->alternates) return steps_ % 2 == 0;
  return choice_.speculates();
}

Status Speculation::begin(const cpuopt::OptimizerParams& guess) {
  guess_ = guess;
  fetched_ = 0;
  n_updated_ = 0;  // leftovers of an interrupted rollback are void
  std::fill(snapshotted_.begin(), snapshotted_.end(), false);
  std::fill(updated_.begin(), updated_.end(), false);
  active_ = !order_.empty() && should_speculate();
  return active_ ? set_constants(context_, guess, step_) : Status::ok();
}

Status Speculation::update(ChunkId chunk) {
  if (!covers(chunk)) return Status::ok();
  // Gives up the last step's snapshots before this step makes its own.
  STRATA_TRY(commit_stored_states(context_, chunk));
  snapshotted_[chunk] = true;
  STRATA_TRY(snapshot_stored_states(context_, chunk));
  STRATA_TRY(queue_update(context_, chunk, step_, UndoAction::save));
  updated_[chunk] = true;
  ++n_updated_;
  return write_back_states(context_, chunk);
}

Result<bool> Speculation::prefetch_states() {
  for (; active_ && fetched_ < order_.size(); ++fetched_) {
    if (updated_[order_[fetched_]]) continue;
    STRATA_TRY_ASSIGN(const bool begun, prefetch_for_update(context_, order_[fetched_], kPersistentPayloads));
    if (!begun) return false;
  }
  return true;
}

void Speculation::resolve(bool right) noexcept {
  for (ChunkId chunk = 0; chunk < snapshotted_.size() && !right; ++chunk)
    if (snapshotted_[chunk]) rollback_stored_states(context_, chunk);
  std::fill(snapshotted_.begin(), snapshotted_.end(), false);
  std::fill(updated_.begin(), updated_.end(), false);
  n_updated_ = 0;
  choice_.record_guess(right);
  ++steps_;
}

Status Speculation::roll_back() {
  for (ChunkId chunk = 0; chunk < updated_.size(); ++chunk) {
    if (!updated_[chunk]) continue;
    STRATA_TRY(queue_update(context_, chunk, step_, UndoAction::rollback));
    updated_[chunk] = false;
  }
  resolve(false);
  return Status::ok();
}

}  // namespace strata::detail

#include "speculation.h"

#include <algorithm>

namespace strata {

Speculation::Speculation(Machine& machine, const PassSchedule& schedule)
    : machine_(machine),
      begun_(machine.plan.layout.n_chunks(), false),
      made_(machine.plan.layout.n_chunks(), false) {
  for (const auto& [position, chunk] : schedule.ready)
    if (machine.plan.undo.covers(chunk)) order_.push_back(chunk);
}

bool Speculation::is_worth_it() const noexcept {
  if (machine_.plan.options.step_mode != StepMode::automatic) return true;
  if (machine_.rehearses()) return steps_ % 2 == 0;  // the plan holds for both
  return choice_.speculates();
}

Status Speculation::begin(const cpuopt::OptimizerParams& guess) {
  guess_ = guess;
  fetched_ = 0;
  n_made_ = 0;  // what a rollback that was cut short left is nobody's any more
  std::fill(begun_.begin(), begun_.end(), false);
  std::fill(made_.begin(), made_.end(), false);
  active_ = !order_.empty() && is_worth_it();
  if (active_) {
    STRATA_TRY_ASSIGN(step_, step_constants(machine_, guess));
  }
  return Status::ok();
}

Status Speculation::update(ChunkId chunk) {
  if (!takes(chunk)) return Status::ok();
  STRATA_TRY(accept_stored(machine_, chunk));  // before anything of this step could be taken back
  begun_[chunk] = true;
  STRATA_TRY(guard_stored(machine_, chunk));
  STRATA_TRY(queue_update(machine_, chunk, step_, Undo::keep));
  made_[chunk] = true;
  ++n_made_;
  return send_states_home(machine_, chunk);
}

Result<bool> Speculation::fetch_early() {
  for (; active_ && fetched_ < order_.size(); ++fetched_) {
    if (made_[order_[fetched_]]) continue;
    STRATA_TRY_ASSIGN(const bool begun, fetch_for_update(machine_, order_[fetched_], kPersistentPayloads));
    if (!begun) return false;
  }
  return true;
}

void Speculation::end(bool right) noexcept {
  for (ChunkId chunk = 0; chunk < begun_.size() && !right; ++chunk)
    if (begun_[chunk]) restore_stored(machine_, chunk);
  std::fill(begun_.begin(), begun_.end(), false);
  std::fill(made_.begin(), made_.end(), false);
  n_made_ = 0;
  choice_.guessed(right);
  ++steps_;
}

Status Speculation::roll_back() {
  for (ChunkId chunk = 0; chunk < made_.size(); ++chunk) {
    if (!made_[chunk]) continue;
    STRATA_TRY(queue_update(machine_, chunk, step_, Undo::restore));
    made_[chunk] = false;
  }
  end(false);
  return Status::ok();
}

}  // namespace strata

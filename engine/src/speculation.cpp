#include "speculation.h"

#include <algorithm>
#include <bit>

namespace strata {

Speculation::Speculation(Machine& machine, const PassSchedule& schedule)
    : machine_(machine),
      begun_(machine.plan.layout.n_chunks(), false),
      made_(machine.plan.layout.n_chunks(), false) {
  for (const auto& [position, chunk] : schedule.ready)
    if (machine.plan.undo.covers(chunk)) order_.push_back(chunk);
}

// A wrong guess costs about what a right one saves: the undo log is written in either case and read in the
// one, and the update is hidden in the other.
bool Speculation::is_worth_it() const noexcept {
  if (machine_.plan.options.step_mode != StepMode::automatic) return true;
  if (machine_.dry()) return steps_ % 2 == 0;  // the plan holds for both
  constexpr std::uint64_t kRemembered = 32;
  const std::uint64_t known = std::min(steps_, kRemembered);
  return known > 0 && 2 * static_cast<std::uint64_t>(std::popcount(clipped_)) < known;
}

Status Speculation::begin(const cpuopt::OptimizerParams& guess) {
  guess_ = guess;
  fetched_ = 0;
  active_ = machine_.plan.undo.bytes > 0 && is_worth_it();
  if (active_) {
    STRATA_TRY_ASSIGN(step_, step_constants(machine_, guess));
  }
  return Status::ok();
}

Status Speculation::update(ChunkId chunk) {
  if (!takes(chunk)) return Status::ok();
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
    STRATA_TRY_ASSIGN(const bool begun, fetch_for_update(machine_, order_[fetched_], kStepPayloads));
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
  clipped_ = clipped_ << 1 | static_cast<std::uint32_t>(!right);
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

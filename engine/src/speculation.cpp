#include "speculation.h"

#include <algorithm>
#include <bit>

namespace strata {

Speculation::Speculation(Machine& machine)
    : machine_(machine), made_(machine.plan.layout.n_chunks(), false) {}

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
  active_ = machine_.plan.undo.bytes > 0 && is_worth_it();
  if (active_) {
    STRATA_TRY_ASSIGN(step_, step_constants(machine_, guess));
  }
  return Status::ok();
}

Status Speculation::update(ChunkId chunk) {
  if (!active_ || !machine_.plan.undo.covers(chunk)) return Status::ok();
  STRATA_TRY(queue_update(machine_, chunk, step_, Undo::keep));
  made_[chunk] = true;
  ++n_made_;
  return Status::ok();
}

void Speculation::end(bool clipped) noexcept {
  std::fill(made_.begin(), made_.end(), false);
  n_made_ = 0;
  clipped_ = clipped_ << 1 | static_cast<std::uint32_t>(clipped);
  ++steps_;
}

Status Speculation::roll_back() {
  for (ChunkId chunk = 0; chunk < made_.size(); ++chunk) {
    if (!made_[chunk]) continue;
    STRATA_TRY(queue_update(machine_, chunk, step_, Undo::restore));
    made_[chunk] = false;
  }
  end(true);
  return Status::ok();
}

}  // namespace strata

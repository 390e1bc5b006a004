#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/session/state_plan.h>

namespace strata {

/// The pinned memory that a session holds for itself, apart from payloads; it follows the driver's part.
/// Sizes are in bytes, multiples of a page.
struct PinnedLayout {
  std::size_t norm_partials =
      0;  ///< f64 partials of the gradient norm, then step_value_count() and model_value_count()
  std::size_t states = 0;       ///< staging memory for states on the device: slots of two parts each
  std::size_t state_slots = 1;  ///< number of these slots
  std::int64_t state_run = 0;   ///< elements that fit into one part of a slot
  std::size_t norms = 0;        ///< norms of whole tensors, for an optimizer that needs them
  std::size_t undo = 0;         ///< UndoLog; comes last
  std::size_t total() const noexcept { return norm_partials + states + norms + undo; }
};
/// Number of flags that a step's ranks tell each other, see StepMachine::finish_gradient().
inline constexpr std::size_t kStepFlags = 16;
/// Number of values of all SessionOptions::step_sums.
std::size_t summed_value_count(const StatePlan& plan) noexcept;
/// Number of f64 values, besides norm partials, that the ranks exchange at the end of a step: the loss of
/// each micro-batch, what is summed, and the flags. 0 for one rank.
std::size_t step_value_count(const StatePlan& plan) noexcept;
/// The same of the ranks that share a copy of the model, which follow: a sum of squares, and the flags. 0 if
/// there are none.
std::size_t model_value_count(const StatePlan& plan) noexcept;

/// Maximum elements of a piece in which states are visited and filled.
inline constexpr std::int64_t kMaxStatePieceElems = 65536;
PinnedLayout plan_pinned_layout(const StatePlan& plan, std::int64_t n_partials);

/// Bytes of the states of `chunk` that an update changes and that live in `tier`.
std::size_t updated_state_bytes(const StatePlan& plan, ChunkId chunk, Tier tier);

}  // namespace strata

#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/chunk/types.h>

namespace strata {

/// The use of the undo log by an update. The log holds a chunk's states from before a speculative update.
enum class UndoAction : std::uint8_t {
  none,
  save,                  ///< saves the states to the log, then updates them
  rollback_then_update,  ///< restores the states from the log, then updates them
  rollback,              ///< restores the states from the log
};

/// The time that work on states takes on a simulated machine if nothing else slows it, in nanoseconds.
class StateCosts {
 public:
  virtual ~StateCosts() = default;
  /// Time of one chunk's update, including its work on the undo log.
  virtual std::int64_t update_ns(ChunkId chunk, bool on_device, UndoAction undo) const = 0;
  /// Time to read and write `bytes` in total.
  virtual std::int64_t sweep_ns(std::size_t bytes, bool on_device) const = 0;
};

/// Stands in for what a run without data cannot compute: the gradient norm, which decides what is clipped.
struct SyntheticSteps {
  double clipped = 0;  ///< fraction of steps that are clipped, evenly spread
  /// Mode `auto` speculates in every other step instead of by the times it measures, so that a dry run covers
  /// both.
  bool alternates = false;
};

}  // namespace strata

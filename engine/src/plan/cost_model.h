#pragma once

#include <strata/engine/engine.h>
#include <strata/offload/machine_profile.h>

#include "step/chunk_update.h"

namespace strata {

/// The time that work takes on a machine by its profile, in nanoseconds, if nothing else slows it. All costs
/// of a simulated run come from here; contention for shared resources is up to the simulation.
class CostModel {
 public:
  CostModel(const RunPlan& plan, const MachineProfile& profile) : plan_(plan), profile_(profile) {}

  std::int64_t instruction_ns(const LoweredInstr& instr) const;
  /// Time of one chunk's update, including its work on the undo log.
  std::int64_t update_ns(ChunkId chunk, bool on_device, UndoAction undo) const;
  /// Time to read and write `bytes` in total.
  std::int64_t sweep_ns(std::size_t bytes, bool on_device) const;

 private:
  const RunPlan& plan_;
  const MachineProfile& profile_;
};

}  // namespace strata

#pragma once

#include <strata/engine/engine.h>
#include <strata/offload/machine_profile.h>

#include "chunk_update.h"

namespace strata {

/// What work costs on a machine, in nanoseconds, by its profile: a table, so that a simulated run is priced
/// in one place. What nothing slows; what work shares is the simulation's.
class CostModel {
 public:
  CostModel(const RunPlan& plan, const MachineProfile& profile) : plan_(plan), profile_(profile) {}

  std::int64_t instruction_ns(const LoweredInstr& instr) const;
  /// Of one chunk's update, with what it does to the undo log.
  std::int64_t update_ns(ChunkId chunk, bool on_device, UndoAction undo) const;
  /// Of reading and writing so many bytes in all.
  std::int64_t sweep_ns(std::size_t bytes, bool on_device) const;

 private:
  const RunPlan& plan_;
  const MachineProfile& profile_;
};

}  // namespace strata

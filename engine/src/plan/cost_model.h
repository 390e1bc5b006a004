#pragma once

#include <strata/engine/run_plan.h>
#include <strata/offload/machine_profile.h>
#include <strata/session/state_costs.h>

#include "execute/instruction_costs.h"

namespace strata::detail {

/// The time that an instruction takes alone.
double instruction_s(const LoweredInstr& instr, double flops, const MachineProfile& profile);

/// The time that work takes on a machine by its profile. All costs of a simulated run come from here;
/// contention for shared resources is up to the simulation.
class CostModel final : public StateCosts, public InstructionCosts {
 public:
  CostModel(const RunPlan& plan, const MachineProfile& profile) : plan_(plan), profile_(profile) {}

  std::int64_t instruction_ns(const LoweredInstr& instr, double flops) const override;
  std::int64_t update_ns(ChunkId chunk, bool on_device, UndoAction undo) const override;
  std::int64_t sweep_ns(std::size_t bytes, bool on_device) const override;

 private:
  const RunPlan& plan_;
  const MachineProfile& profile_;
};

}  // namespace strata::detail

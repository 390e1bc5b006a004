#include <strata/engine/region_costs.h>

#include <strata/graph/ops.h>

#include "plan/cost_model.h"

namespace strata {
namespace {

// Where operands are does not matter for how long an instruction takes.
Operand operand(const Program& program, ValueId id) {
  if (id == kNoValue) return {};
  const ValueInfo& value = program.value(id);
  return {.location = Operand::Location::arena, .shape = value.shape, .dtype = value.dtype};
}

}  // namespace

std::vector<double> region_seconds(const Program& program, const MachineProfile& profile) {
  std::vector<double> seconds(program.regions.size());
  for (const Instr& instr : program.code) {
    if (is_collective(instr.op) || is_move(instr.op) || is_message(instr.op)) continue;
    LoweredInstr lowered{instr.op, instr.attrs, instr.accumulate, {}, {}};
    for (const ValueId id : instr.in) lowered.in.push_back(operand(program, id));
    for (const ValueId id : instr.out) lowered.out.push_back(operand(program, id));
    seconds[static_cast<std::size_t>(instr.region)] +=
        detail::instruction_s(lowered, flops(program, instr), profile);
  }
  return seconds;
}

}  // namespace strata

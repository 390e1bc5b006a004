#pragma once

#include <functional>
#include <span>
#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/session/step_machine.h>

#include "execute/activation_moves.h"
#include "execute/instruction_costs.h"
#include "execute/program_collectives.h"
#include "execute/program_messages.h"
#include "execute/program_memory.h"

namespace strata::detail {

/// Replays a lowered program: binds the operands of each instruction to memory and launches it, between the
/// StepMachine's enter() and leave(). Not thread-safe; allocates nothing after construction.
class ProgramExecutor {
 public:
  static constexpr std::size_t kMaxOperands = 12;
  /// All references outlive the executor; `costs` is null unless the run is simulated.
  ProgramExecutor(StateContext& context, StepMachine& machine, const ProgramMemory& memory,
                  const RunPlan& plan, const InstructionCosts* costs);

  /// Is called with the index of an instruction once it is queued.
  using AfterInstr = std::function<Status(std::size_t)>;
  /// Runs `program` once.
  Status run(const LoweredProgram& program, const StepMachine::Pass& pass, const AfterInstr& after = {});
  /// The bytes of the arena that each program of the plan has used so far.
  std::span<const std::size_t> arena_used() const noexcept { return arena_used_; }
  /// To be called after a failure, once the streams are idle.
  void release() noexcept { moves_.release(); }

 private:
  Status launch(const LoweredProgram& program, std::size_t i);
  Status compute(const LoweredInstr& instr, const UseTrace::Position& uses);
  Status launch_paced(const LoweredInstr& instr, std::int64_t ns);
  TensorView bind(const UseTrace::Position& uses, const Operand& operand);

  StateContext& context_;
  StepMachine& machine_;
  const ProgramMemory& memory_;
  const RunPlan& plan_;
  const InstructionCosts* const costs_;
  std::vector<std::size_t> arena_used_;
  std::size_t* used_ = nullptr;  // belongs to the program that runs
  ActivationMoves moves_;
  ProgramCollectives collectives_;
  ProgramMessages messages_;
};

}  // namespace strata::detail

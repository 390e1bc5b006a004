#include "execute/program_executor.h"

#include <algorithm>
#include <array>

#include <strata/graph/launch.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/trace/profiler_range.h>

namespace strata::detail {

ProgramExecutor::ProgramExecutor(StateContext& context, StepMachine& machine, const ProgramMemory& memory,
                                 const RunPlan& plan, const InstructionCosts* costs)
    : context_(context),
      machine_(machine),
      memory_(memory),
      plan_(plan),
      costs_(costs),
      arena_used_(plan.programs.size(), 0),
      moves_(context, memory, plan),
      collectives_(context, plan),
      messages_(context, plan) {
  for (const PlannedProgram& planned : plan.programs)
    for (const LoweredInstr& instr : planned.program.code)
      STRATA_ASSERT(instr.in.size() <= kMaxOperands && instr.out.size() <= kMaxOperands,
                    "an instruction with ", instr.in.size(), " inputs");
}

Status ProgramExecutor::run(const LoweredProgram& program, const StepMachine::Pass& pass,
                            const AfterInstr& after) {
  const auto own = std::find_if(plan_.programs.begin(), plan_.programs.end(),
                                [&](const PlannedProgram& planned) { return &planned.program == &program; });
  STRATA_ASSERT(own != plan_.programs.end(), "a program that is not of the plan");
  used_ = &arena_used_[static_cast<std::size_t>(own - plan_.programs.begin())];
  RankProgress* const progress = pass.accumulates ? context_.progress() : nullptr;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    if (progress != nullptr) progress->at(static_cast<std::int32_t>(i) + 1, op_name(program.code[i].op));
    STRATA_TRY(machine_.enter(pass, static_cast<std::int32_t>(i)));
    STRATA_TRY(launch(program, i));
    if (after) STRATA_TRY(after(i));
    STRATA_TRY(machine_.leave(pass, static_cast<std::int32_t>(i)));
    STRATA_TRY(moves_.pump());
  }
  return Status::ok();
}

TensorView ProgramExecutor::bind(const UseTrace::Position& uses, const Operand& operand) {
  const auto view = [&](std::byte* data) { return TensorView{data, operand.shape, operand.dtype}; };
  switch (operand.location) {
    case Operand::Location::none:
      return view(nullptr);
    case Operand::Location::arena:
      *used_ = std::max(*used_, static_cast<std::size_t>(operand.offset) + operand.bytes());
      return view(memory_.arena(operand));
    case Operand::Location::state:
      return view(memory_.state(operand));
    case Operand::Location::host:
      return view(memory_.host(operand));
    case Operand::Location::grad:
      return view(machine_.gradient(operand.chunk) + operand.offset);
    case Operand::Location::param: {
      std::byte* const chunk = machine_.param(uses, operand.chunk);
      return view(chunk == nullptr ? nullptr : chunk + operand.offset);  // null: only its shape is needed
    }
  }
  return {};
}

namespace {

void compute_nothing(const std::int64_t&, ThreadPool&) {}

}  // namespace

// A call without pacing would end when its thread gets to it, and delay everything after it.
Status ProgramExecutor::launch_paced(const LoweredInstr& instr, std::int64_t ns) {
  ns = std::max<std::int64_t>(1, ns);
  return context_.backend().host_call_async(HostCall(op_name(instr.op), &compute_nothing, ns).paced(ns),
                                            context_.streams().compute);
}

Status ProgramExecutor::launch(const LoweredProgram& program, std::size_t index) {
  const LoweredInstr& instr = program.code[index];
  const UseTrace::Position& uses = program.uses.positions[index];
  if (is_move(instr.op)) return moves_.run(instr);
  if (instr.op == Op::accumulate_over_ranks) STRATA_TRY(compute(instr, uses));
  if (is_collective(instr.op))
    return collectives_.queue(instr.op, instr.attrs.as<CollectiveAttrs>(), bind(uses, instr.in[0]),
                              bind(uses, instr.out[0]));
  if (is_message(instr.op))
    return messages_.queue(instr.op, instr.attrs.as<MessageAttrs>(),
                           bind(uses, instr.in.empty() ? instr.out[0] : instr.in[0]),
                           bind(uses, instr.out[0]));
  return compute(instr, uses);
}

Status ProgramExecutor::compute(const LoweredInstr& instr, const UseTrace::Position& uses) {
  if (const double rate = context_.plan().options.paced_flops_per_s; rate > 0)
    return launch_paced(instr, static_cast<std::int64_t>(uses.flops / rate * 1e9));
  if (costs_ != nullptr) return launch_paced(instr, costs_->instruction_ns(instr, uses.flops));
  const ProfilerRange range(op_name(instr.op));
  std::array<TensorView, kMaxOperands> in, out;
  for (std::size_t i = 0; i < instr.in.size(); ++i) in[i] = bind(uses, instr.in[i]);
  for (std::size_t i = 0; i < instr.out.size(); ++i) out[i] = bind(uses, instr.out[i]);
  return strata::launch(
      {instr.op, instr.attrs, instr.accumulate, {in.data(), instr.in.size()}, {out.data(), instr.out.size()}},
      context_.backend(), context_.streams().compute);
}

}  // namespace strata::detail

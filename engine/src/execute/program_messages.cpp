#include "execute/program_messages.h"

#include <algorithm>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "plan/collective_of.h"

namespace strata::detail {

ProgramMessages::ProgramMessages(StateContext& context, const RunPlan& plan) : context_(context) {
  std::int32_t messages = 0;
  for (const PlannedProgram& planned : plan.programs)
    for (const LoweredInstr& instr : planned.program.code)
      if (is_message(instr.op)) messages = std::max(messages, instr.attrs.as<MessageAttrs>().number + 1);
  passed_.resize(static_cast<std::size_t>(messages));
}

Status ProgramMessages::queue(Op op, const MessageAttrs& attrs, const TensorView& in, const TensorView& out) {
  Backend& backend = context_.backend();
  Stream &compute = context_.streams().compute, &travelling = context_.streams().collective;
  Event& passed = passed_[static_cast<std::size_t>(attrs.number)];
  if (op == Op::send_end || op == Op::receive_end) {
    STRATA_TRY(backend.wait_on_async(passed, compute));
    if (op == Op::send_end || in.data == out.data) return {};
    return backend.copy_async(writable(out), bytes_of(in), compute);
  }
  STRATA_TRY_ASSIGN(const Event ready, backend.record(compute));
  STRATA_TRY(backend.wait_on_async(ready, travelling));
  ProcessGroup& group = context_.model_groups()->along(static_cast<MeshAxis>(attrs.axis));
  STRATA_TRY(op == Op::send_begin ? group.send(bytes_of(in), attrs.peer, travelling)
                                  : group.receive(writable(out), attrs.peer, travelling));
  STRATA_TRY_ASSIGN(passed, backend.record(travelling));
  return {};
}

}  // namespace strata::detail

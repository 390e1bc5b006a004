#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/program.h>

#include <strata/runtime/str.h>

#include "verify_moves.h"

namespace strata {
namespace {

Status verify_operands(const Program& program, const Instr& instr) {
  const OpDef& def = op_def(instr.op);
  if (instr.in.size() != static_cast<std::size_t>(def.n_in))
    return Status::error(Code::internal, str("has ", instr.in.size(), " operands, the op needs ", def.n_in));
  if (!instr.attrs.belong_to(instr.op))
    return Status::error(Code::internal, "has the attributes of another op");
  const auto n = static_cast<ValueId>(program.values.size());
  for (std::size_t k = 0; k < instr.in.size(); ++k)
    if (instr.in[k] >= n || instr.in[k] < (def.optional_in.contains(k) ? kNoValue : 0))
      return Status::error(Code::internal, str("operand ", k, " is value ", instr.in[k], " of ", n));
  for (const ValueId id : instr.out)
    if (id < 0 || id >= n) return Status::error(Code::internal, str("writes value ", id, " of ", n));
  return Status::ok();
}

Status verify_instr(const Program& program, const Instr& instr, std::vector<bool>& defined) {
  STRATA_TRY(verify_operands(program, instr));
  for (const ValueId id : instr.in)
    if (id != kNoValue && !defined[static_cast<std::size_t>(id)])
      return Status::error(Code::internal, str("reads ", program.value(id).name, " before it is written"));
  STRATA_TRY_ASSIGN(const auto outputs, infer_outputs(program, instr));
  if (outputs.size() != instr.out.size())
    return Status::error(Code::internal,
                         str("has ", instr.out.size(), " outputs, the op has ", outputs.size()));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const ValueInfo& out = program.value(instr.out[k]);
    const bool is_gradient = out.kind == ValueKind::grad || out.kind == ValueKind::micro_batch_grad;
    const bool as_f32 = is_gradient && out.dtype == DType::f32;  // a sum that is not rounded yet
    if (!(out.shape == outputs[k].shape) || (out.dtype != outputs[k].dtype && !as_f32))
      return Status::error(Code::internal,
                           str("writes ", out.name, " of shape ", to_string(out.dtype), to_string(out.shape),
                               ", the op writes ", to_string(outputs[k].dtype), to_string(outputs[k].shape)));
    const bool accumulates = (instr.accumulate >> k & 1u) != 0;
    const bool written = defined[static_cast<std::size_t>(instr.out[k])];
    if (accumulates != (is_gradient && written) || (written && !is_gradient))
      return Status::error(Code::internal, str(accumulates ? "adds to " : "overwrites ", out.name));
    defined[static_cast<std::size_t>(instr.out[k])] = true;
  }
  return Status::ok();
}

}  // namespace

Status verify(const Program& program) {
  for (const auto* list : {&program.inputs, &program.states, &program.outputs, &program.results})
    for (const ValueId id : *list) {
      if (id < 0 || id >= static_cast<ValueId>(program.values.size()))
        return Status::error(Code::internal, str("an input, state, output or result is value ", id, " of ",
                                                 program.values.size()));
      if (program.find(program.value(id).name) != id)
        return Status::error(
            Code::internal, str("two inputs, states, outputs or results are named ", program.value(id).name));
    }
  std::vector<bool> defined(program.values.size(), false);
  for (std::size_t v = 0; v < program.values.size(); ++v)
    defined[v] = program.values[v].kind == ValueKind::param;
  for (const auto* list : {&program.inputs, &program.states})
    for (const ValueId id : *list) defined[static_cast<std::size_t>(id)] = true;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    Status status = verify_instr(program, program.code[i], defined);
    if (!status.is_ok())
      return Status::error(
          Code::internal, str("instruction ", i, " (", op_name(program.code[i].op), "): ", status.message()));
  }
  for (const auto* list : {&program.outputs, &program.results})
    for (const ValueId id : *list)
      if (!defined[static_cast<std::size_t>(id)])
        return Status::error(Code::internal, str(list == &program.outputs ? "output " : "result ",
                                                 program.value(id).name, " is never written"));
  return detail::verify_moves(program);
}

}  // namespace strata

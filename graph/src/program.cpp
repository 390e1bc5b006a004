#include <strata/graph/program.h>

#include <strata/graph/ops.h>
#include <strata/runtime/str.h>

namespace strata {

ValueId Program::find(std::string_view name) const noexcept {
  for (const auto* list : {&inputs, &outputs})
    for (const ValueId id : *list)
      if (value(id).name == name) return id;
  return kNoValue;
}

std::string to_string(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    text += str(i, " ", op_def(instr.op).name, "(");
    for (std::size_t k = 0; k < instr.in.size(); ++k)
      text += str(k > 0 ? ", " : "", instr.in[k] == kNoValue ? std::string("-") : program.value(instr.in[k]).name);
    text += ") ->";
    for (std::size_t k = 0; k < instr.out.size(); ++k) {
      const ValueInfo& out = program.value(instr.out[k]);
      text += str(" ", out.name, (instr.accumulate >> k & 1u) != 0 ? "+=" : ":", to_string(out.shape));
    }
    text += "\n";
  }
  return text;
}

namespace {

Status verify_instr(const Program& program, const Instr& instr, std::vector<bool>& defined) {
  std::vector<const ValueInfo*> in;
  for (const ValueId id : instr.in) {
    if (id != kNoValue && !defined[static_cast<std::size_t>(id)])
      return Status::error(Code::internal, str("reads ", program.value(id).name, " before it is written"));
    in.push_back(id == kNoValue ? nullptr : &program.value(id));
  }
  STRATA_TRY_ASSIGN(const auto outputs, op_def(instr.op).infer(in, instr.attrs));
  if (outputs.size() != instr.out.size())
    return Status::error(Code::internal, str("has ", instr.out.size(), " outputs, the op makes ", outputs.size()));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const ValueInfo& out = program.value(instr.out[k]);
    if (!(out.shape == outputs[k].shape) || out.dtype != outputs[k].dtype)
      return Status::error(Code::internal, str("writes ", out.name, " of shape ", to_string(out.shape),
                                               ", the op makes ", to_string(outputs[k].shape)));
    const bool accumulates = (instr.accumulate >> k & 1u) != 0;
    if (accumulates != (out.kind == ValueKind::grad && defined[static_cast<std::size_t>(instr.out[k])]))
      return Status::error(Code::internal, str(accumulates ? "adds to " : "overwrites ", out.name));
    defined[static_cast<std::size_t>(instr.out[k])] = true;
  }
  return Status::ok();
}

}  // namespace

Status verify(const Program& program) {
  std::vector<bool> defined(program.values.size(), false);
  for (const ParamInfo& param : program.params) defined[static_cast<std::size_t>(param.value)] = true;
  for (const ValueId id : program.inputs) defined[static_cast<std::size_t>(id)] = true;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    Status status = verify_instr(program, program.code[i], defined);
    if (!status.is_ok())
      return Status::error(Code::internal, str("instruction ", i, " (", op_def(program.code[i].op).name, "): ", status.message()));
  }
  for (const ValueId id : program.outputs)
    if (!defined[static_cast<std::size_t>(id)])
      return Status::error(Code::internal, str("output ", program.value(id).name, " is never written"));
  return Status::ok();
}

}  // namespace strata

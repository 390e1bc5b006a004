#include <strata/graph/program.h>

#include <algorithm>

#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>

namespace strata {

ValueId Program::find(std::string_view name) const noexcept {
  for (const auto* list : {&inputs, &states, &outputs, &results})
    for (const ValueId id : *list)
      if (value(id).name == name) return id;
  return kNoValue;
}

std::string name_in_micro_batch(std::string_view name, std::int32_t micro_batch) {
  return micro_batch == 0 ? std::string(name) : str(name, "#", micro_batch);
}

bool has_op(const Program& program, Op op) noexcept {
  return std::any_of(program.code.begin(), program.code.end(),
                     [&](const Instr& instr) { return instr.op == op; });
}

std::string to_string(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    text += str(i, " ", op_name(instr.op), "(");
    for (std::size_t k = 0; k < instr.in.size(); ++k)
      text += str(k > 0 ? ", " : "",
                  instr.in[k] == kNoValue ? std::string("-") : program.value(instr.in[k]).name);
    text += ") ->";
    for (std::size_t k = 0; k < instr.out.size(); ++k) {
      const ValueInfo& out = program.value(instr.out[k]);
      text += str(" ", out.name, (instr.accumulate >> k & 1u) != 0 ? "+=" : ":", to_string(out.shape));
    }
    text += "\n";
  }
  return text;
}

}  // namespace strata

#include <strata/plan/expert_rows.h>

#include <utility>

#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>

namespace strata {

std::string expert_rows_output(std::size_t mixture) { return str("expert_rows.", mixture); }

Program with_expert_rows(Program program) {
  std::size_t mixture = 0;
  for (const Instr& instr : program.code) {
    if (instr.op != Op::route_rows) continue;
    const ValueId offsets = instr.out.front();
    program.values[static_cast<std::size_t>(offsets)].name = expert_rows_output(mixture++);
    program.outputs.push_back(offsets);
  }
  return program;
}

}  // namespace strata

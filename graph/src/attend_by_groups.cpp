#include <strata/graph/passes.h>

namespace strata {

Program attend_by_groups(Program program) {
  for (Instr& instr : program.code)
    if (instr.op == Op::attention || instr.op == Op::attention_backward) instr.attrs.by_groups = true;
  return program;
}

}  // namespace strata

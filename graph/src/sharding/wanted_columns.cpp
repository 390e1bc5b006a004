#include "sharding/wanted_columns.h"

#include <strata/graph/ops.h>

namespace strata::detail {

std::vector<Cut> wanted_columns(const Program& program) {
  std::vector<Cut> wanted(program.values.size());
  for (std::size_t i = program.code.size(); i-- > 0;) {
    const Instr& instr = program.code[i];
    const auto rule = op_def(instr.op).operand_columns;
    if (rule == nullptr || program.value(instr.in[0]).shape.rank != 2) continue;
    const Cut cut =
        rule(program.value(instr.in[0]), instr.attrs, wanted[static_cast<std::size_t>(instr.out[0])]);
    for (const ValueId id : instr.in)
      if (id != kNoValue && cut.n > 0 && program.value(id).shape.rank == 2 &&
          program.value(id).shape.dim(1) == cut.extent())
        wanted[static_cast<std::size_t>(id)] = cut;
  }
  return wanted;
}

}  // namespace strata::detail

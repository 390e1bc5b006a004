#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>

namespace strata {

Program assign_gemm_workspaces(Program program) {
  for (Instr& instr : program.code) {
    if (op_def(instr.op).kind != OpKind::gemm || instr.attrs.has_gemm_workspace()) continue;
    instr.attrs.gemm()->workspace = true;
    const auto made = infer_outputs(program, instr);
    STRATA_ASSERT(made.has_value() && made->size() == instr.out.size() + 1, "the workspace of ",
                  op_name(instr.op));
    // A head's blocks of logits are larger on a GPU, and so is its other workspace.
    for (std::size_t k = 0; k < instr.out.size(); ++k)
      if (instr.out[k] != kNoValue)
        program.values[static_cast<std::size_t>(instr.out[k])].shape = (*made)[k].shape;
    instr.out.push_back(add_output(program, op_name(instr.op), made->back()));
  }
  return program;
}

}  // namespace strata

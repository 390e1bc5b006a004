#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

bool is_gemm(Op op) {
  return op == Op::linear || op == Op::linear_backward_input || op == Op::linear_backward_weight ||
         op == Op::linear_cross_entropy || op == Op::linear_cross_entropy_backward || op == Op::fp8_gemm;
}

}  // namespace

Program assign_gemm_workspaces(Program program) {
  for (Instr& instr : program.code) {
    if (!is_gemm(instr.op) || instr.attrs.gemm_workspace) continue;
    instr.attrs.gemm_workspace = true;
    std::vector<const ValueInfo*> in;
    for (const ValueId id : instr.in) in.push_back(id == kNoValue ? nullptr : &program.value(id));
    const auto made = op_def(instr.op).infer_outputs(in, instr.attrs);
    STRATA_ASSERT(made.has_value() && made->size() == instr.out.size() + 1, "the workspace of ",
                  op_def(instr.op).name);
    const OutputSpec& scratch = made->back();
    instr.out.push_back(program.add_value({str(op_def(instr.op).name, ".", scratch.name), scratch.shape,
                                           scratch.dtype, ValueKind::workspace, -1}));
  }
  return program;
}

}  // namespace strata

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>

namespace strata {

Program select_attention_backend(Program program, const kernels::AttentionOrder& order) {
  for (Instr& instr : program.code) {
    const auto effective_backend = op_def(instr.op).effective_backend;
    if (effective_backend == nullptr) continue;
    const bool backward = op_def(instr.op).kind == OpKind::attention_backward;
    AttentionBackend chosen = AttentionBackend::mma;
    for (const AttentionBackend by : backward ? order.backward : order.forward) {
      chosen = effective_backend(value_infos(program, instr.in), instr.attrs, by);
      if (chosen == by) break;
    }
    instr.attrs.as<AttentionAttrs>().backend = chosen;
    const auto made = infer_outputs(program, instr);
    STRATA_ASSERT(made.has_value() && made->back().workspace, "the workspace of ", op_name(instr.op));
    program.values[static_cast<std::size_t>(instr.out.back())].shape = made->back().shape;
  }
  return program;
}

}  // namespace strata

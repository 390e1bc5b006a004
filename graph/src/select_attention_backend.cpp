#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>

namespace strata {
namespace {

// The optional operand is doc_start, which is given for packed documents.
bool is_packed(const Instr& instr) {
  return instr.in[static_cast<std::size_t>(op_def(instr.op).optional_in)] != kNoValue;
}

}  // namespace

Program select_attention_backend(Program program, kernels::AttentionBackend by) {
  for (Instr& instr : program.code) {
    if (instr.op != Op::attention && instr.op != Op::attention_backward) continue;
    kernels::AttentionHeads heads = attention_heads(instr.attrs);
    heads.backend = by;
    const ValueInfo& qkv = program.value(instr.in[0]);
    instr.attrs.backend = kernels::effective_attention_backend(
        heads, qkv.shape.dim(0), qkv.dtype, qkv.shape.dim(-1) / (heads.heads + 2 * heads.kv_heads),
        is_packed(instr), instr.op == Op::attention_backward);
    std::vector<const ValueInfo*> in;
    for (const ValueId id : instr.in) in.push_back(id == kNoValue ? nullptr : &program.value(id));
    const auto made = op_def(instr.op).infer_outputs(in, instr.attrs);
    STRATA_ASSERT(made.has_value() && made->back().workspace, "the workspace of ", op_def(instr.op).name);
    program.values[static_cast<std::size_t>(instr.out.back())].shape = made->back().shape;
  }
  return program;
}

}  // namespace strata

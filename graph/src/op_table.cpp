#include <strata/graph/ops.h>

#include <array>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

namespace strata {

const OpDef& op_def(Op op) noexcept {
#define STRATA_ENTRY(name, attrs) &detail::op_defs::name,
  static constexpr std::array<const OpDef*, kOps> kTable = {STRATA_GRAPH_OPS(STRATA_ENTRY)};
#undef STRATA_ENTRY
  return *kTable[static_cast<std::size_t>(op)];
}

std::vector<const ValueInfo*> value_infos(const Program& program, std::span<const ValueId> ids) {
  std::vector<const ValueInfo*> infos;
  infos.reserve(ids.size());
  for (const ValueId id : ids) infos.push_back(id == kNoValue ? nullptr : &program.value(id));
  return infos;
}

Result<std::vector<OutputSpec>> infer_outputs(const Program& program, const Instr& instr) {
  return op_def(instr.op).infer_outputs(value_infos(program, instr.in), instr.attrs);
}

ValueId add_output(Program& program, std::string_view prefix, const OutputSpec& spec) {
  return program.add_value({str(prefix, ".", spec.name), spec.shape, spec.dtype,
                            spec.workspace ? ValueKind::workspace : ValueKind::activation, -1});
}

double flops(const Program& program, const Instr& instr) {
  return op_def(instr.op).flops(value_infos(program, instr.in), value_infos(program, instr.out), instr.attrs);
}

}  // namespace strata

#include "execute/sequences/state_rows.h"

#include <algorithm>

#include <strata/graph/op_list.h>

namespace strata::detail {
namespace {

bool has_rows_of_tokens(Op op) noexcept {
  return op == Op::cached_attention || op == Op::cached_latents || op == Op::latent_keys_values;
}

}  // namespace

StateRows::StateRows(const LoweredProgram& program) {
  for (const LoweredInstr& instr : program.code) {
    if (has_rows_of_tokens(instr.op)) continue;
    for (const Operand& operand : instr.in) {
      if (operand.location != Operand::Location::state) continue;
      const std::size_t begin = operand.offset;
      if (std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return row.begin == begin; }))
        continue;
      slots_ = static_cast<std::int32_t>(operand.shape.dim(0));
      const std::size_t bytes = operand.bytes() / static_cast<std::size_t>(slots_);
      rows_.push_back({begin, bytes, snapshot_bytes_});
      snapshot_bytes_ += bytes;
    }
  }
}

std::size_t snapshot_bytes(const RunPlan& plan) {
  if (plan.snapshots == 0) return 0;
  const StateRows rows(plan.of(ProgramRole::decode));
  return rows.snapshot_bytes() * static_cast<std::size_t>(rows.slots()) *
         static_cast<std::size_t>(plan.snapshots);
}

}  // namespace strata::detail

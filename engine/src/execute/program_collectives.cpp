#include "execute/program_collectives.h"

#include <algorithm>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>

#include "plan/collective_of.h"

namespace strata::detail {

namespace {

// Along dp are the copies of the model, whose groups are those of DataParallel.
ProcessGroup& group_of(StateContext& context, Op op, const CollectiveAttrs& attrs) {
  const auto axis = static_cast<MeshAxis>(attrs.axis);
  if (axis == MeshAxis::dp) return context.groups()->in_program();
  ModelGroups& groups = *context.model_groups();
  return is_among_neighbours(op) ? groups.neighbours(axis, attrs.group) : groups.along(axis);
}

}  // namespace

Status prepare_collective(ModelGroups& groups, Op op, const CollectiveAttrs& attrs) {
  if (!is_among_neighbours(op)) return {};
  return groups.prepare_neighbours(static_cast<MeshAxis>(attrs.axis), attrs.group);
}

ProgramCollectives::ProgramCollectives(StateContext& context, const RunPlan& plan) : context_(context) {
  std::int32_t shifts = 0;
  for (const PlannedProgram& planned : plan.programs)
    for (const LoweredInstr& instr : planned.program.code)
      if (instr.op == Op::shift_begin)
        shifts = std::max(shifts, instr.attrs.as<CollectiveAttrs>().number + 1);
  shifted_.resize(static_cast<std::size_t>(shifts));
}

Status ProgramCollectives::begin_shift(const CollectiveAttrs& attrs, const TensorView& in,
                                       const TensorView& out) {
  Backend& backend = context_.backend();
  Stream& stream = context_.streams().collective;
  STRATA_TRY_ASSIGN(const Event ready, backend.record(context_.streams().compute));
  STRATA_TRY(backend.wait_on_async(ready, stream));
  STRATA_TRY(context_.model_groups()
                 ->along(static_cast<MeshAxis>(attrs.axis))
                 .queue(collective_of(Op::shift_begin, attrs, in, out), stream));
  STRATA_TRY_ASSIGN(shifted_[static_cast<std::size_t>(attrs.number)], backend.record(stream));
  return {};
}

Status ProgramCollectives::queue(Op op, const CollectiveAttrs& attrs, const TensorView& in,
                                 const TensorView& out) {
  Stream& compute = context_.streams().compute;
  if (op == Op::shift_begin) return begin_shift(attrs, in, out);
  // A summand is in `out` already.
  const bool is_copied = op != Op::accumulate_over_ranks && (reduces_in_place(op) || op == Op::shift_end);
  if (op == Op::shift_end)
    STRATA_TRY(context_.backend().wait_on_async(shifted_[static_cast<std::size_t>(attrs.number)], compute));
  if (is_copied && in.data != out.data)
    STRATA_TRY(context_.backend().copy_async(writable(out), bytes_of(in), compute));
  if (op == Op::shift_end) return {};
  return group_of(context_, op, attrs).queue(collective_of(op, attrs, in, out), compute);
}

}  // namespace strata::detail

#include "execute/activation_moves.h"

#include <algorithm>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/assert.h>

// Why copies never touch bytes that are in use: a begin is ordered after everything that the compute stream
// did before, which includes waiting for the copies of all earlier ends. So the bytes that are copied are
// complete, the bytes that are overwritten are no longer needed, on the device and on the host, and a value
// is fetched only after it was offloaded. The slow tier reads host memory once the copy into it is done, and
// writes to it once no queued copy reads it.

namespace strata::detail {

ActivationMoves::ActivationMoves(StateContext& context, const ProgramMemory& memory, const RunPlan& plan)
    : context_(context), memory_(memory), store_(context, memory, plan.of(ProgramRole::train)) {
  std::int32_t max_moves = 0;
  for (const PlannedProgram& planned : plan.programs)
    max_moves = std::max(max_moves, planned.program.offload.n);
  done_.resize(static_cast<std::size_t>(max_moves));
}

Status ActivationMoves::copy(BufferView to, ConstBufferView from, Stream& lane, Event& done) {
  Backend& backend = context_.backend();
  STRATA_TRY_ASSIGN(const Event here, backend.record(context_.streams().compute));
  STRATA_TRY(backend.wait_on_async(here, lane));
  STRATA_TRY(backend.copy_async(to, from, lane));
  STRATA_TRY_ASSIGN(done, backend.record(lane));
  return {};
}

Status ActivationMoves::run(const LoweredInstr& instr) {
  Event& done = done_[static_cast<std::size_t>(instr.attrs.as<MoveAttrs>().number)];
  const Operand& operand = instr.in[0];
  const std::size_t bytes = operand.bytes();
  switch (instr.op) {
    case Op::offload_begin:
      return copy({memory_.host(instr.out[0]), bytes}, {memory_.arena(operand), bytes},
                  context_.streams().d2h, done);
    case Op::offload_end:
      STRATA_TRY(context_.backend().wait_on_async(done, context_.streams().compute));
      return context_.backend().discard_async({memory_.arena(operand), bytes}, context_.streams().compute);
    case Op::store_begin:
      return store_.begin(instr, done);
    case Op::load_begin: {
      STRATA_TRY_ASSIGN(const Event copied, context_.backend().record(context_.streams().h2d));
      return store_.begin(instr, copied);
    }
    case Op::store_end:
    case Op::load_end:
      return store_.end(instr);
    case Op::fetch_begin:
      return copy({memory_.arena(instr.out[0]), bytes}, {memory_.host(operand), bytes},
                  context_.streams().h2d, done);
    case Op::fetch_end:
      return context_.backend().wait_on_async(done, context_.streams().compute);
    default:
      STRATA_ASSERT(false, "not a move");
      return {};
  }
}

}  // namespace strata::detail

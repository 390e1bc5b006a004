#include "activation_moves.h"

#include <algorithm>

#include <strata/runtime/assert.h>

// Why no copy meets another's bytes: a begin is ordered behind all that the compute stream did before, and
// that has waited for the copies of every end before. So what is copied is whole, what is written over is no
// longer needed, on the device and on the host, and a value comes back only after it has left. The slow tier
// reads memory of the host once its copy is done, and writes to it once no copy queued so far reads it.

namespace strata {

ActivationMoves::ActivationMoves(Machine& machine) : machine_(machine), store_(machine) {
  std::int32_t most = 0;
  for (const LoweredProgram* program : machine.plan.programs()) most = std::max(most, program->offload.n);
  done_.resize(static_cast<std::size_t>(most));
}

Status ActivationMoves::copy(BufferView to, ConstBufferView from, Stream& lane, Event& done) {
  Backend& backend = machine_.backend;
  STRATA_TRY_ASSIGN(const Event here, backend.record(machine_.compute));
  STRATA_TRY(backend.wait_on_async(here, lane));
  STRATA_TRY(backend.copy_async(to, from, lane));
  STRATA_TRY_ASSIGN(done, backend.record(lane));
  return {};
}

Status ActivationMoves::run(const LoweredInstr& instr) {
  Event& done = done_[static_cast<std::size_t>(instr.attrs.move)];
  const Operand& operand = instr.in[0];
  const std::size_t bytes = static_cast<std::size_t>(operand.shape.n_elems()) * size_of(operand.dtype);
  switch (instr.op) {
    case Op::offload_begin:
      return copy({machine_.host(instr.out[0]), bytes}, {machine_.arena(operand), bytes}, machine_.d2h, done);
    case Op::offload_end:
      STRATA_TRY(machine_.backend.wait_on_async(done, machine_.compute));
      return machine_.backend.discard_async({machine_.arena(operand), bytes}, machine_.compute);
    case Op::store_begin:
      return store_.begin(instr, done);
    case Op::load_begin: {
      STRATA_TRY_ASSIGN(const Event copied, machine_.backend.record(machine_.h2d));
      return store_.begin(instr, copied);
    }
    case Op::store_end:
    case Op::load_end:
      return store_.end(instr);
    case Op::fetch_begin:
      return copy({machine_.arena(instr.out[0]), bytes}, {machine_.host(operand), bytes}, machine_.h2d, done);
    case Op::fetch_end:
      return machine_.backend.wait_on_async(done, machine_.compute);
    default:
      STRATA_ASSERT(false, "no move");
      return {};
  }
}

}  // namespace strata

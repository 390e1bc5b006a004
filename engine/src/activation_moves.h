#pragma once

#include <vector>

#include "activation_store.h"
#include "execution_context.h"

namespace strata {

/// Activations that leave the device for pinned memory and come back, on the lanes that chunks take. The host
/// waits for none of it: streams wait for each other. What goes on to the slow tier is the store's. One
/// thread; allocates nothing after construction.
class ActivationMoves {
 public:
  explicit ActivationMoves(ExecutionContext& context);

  /// Queues `instr`, a move: a begin copies once the compute stream has come to it, an end lets the compute
  /// stream wait for that copy.
  Status run(const LoweredInstr& instr);
  /// Submits to the slow tier what can be.
  Status pump() { return store_.pump(); }
  /// After a failure, once the streams are idle.
  void release() noexcept { store_.release(); }

 private:
  Status copy(BufferView to, ConstBufferView from, Stream& lane, Event& done);

  ExecutionContext& context_;
  std::vector<Event> done_;  // by move: its last copy
  ActivationStore store_;
};

}  // namespace strata

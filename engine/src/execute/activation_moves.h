#pragma once

#include <vector>

#include "execute/activation_store.h"

namespace strata::detail {

/// Moves activations from the device to pinned memory and back, on the streams that chunks use too. The host
/// never waits for these copies; streams wait for each other. Moves to the slow tier are left to
/// ActivationStore. Not thread-safe; allocates nothing after construction.
class ActivationMoves {
 public:
  /// All references outlive the object.
  ActivationMoves(StateContext& context, const ProgramMemory& memory, const RunPlan& plan);

  /// Queues a move: a begin copies once the compute stream has reached it, and an end makes the compute
  /// stream wait for that copy.
  Status run(const LoweredInstr& instr);
  /// Submits the requests to the slow tier that are ready.
  Status pump() { return store_.pump(); }
  /// To be called after a failure, once the streams are idle.
  void release() noexcept { store_.release(); }

 private:
  Status copy(BufferView to, ConstBufferView from, Stream& lane, Event& done);

  StateContext& context_;
  const ProgramMemory& memory_;
  std::vector<Event> done_;  // the event after the last copy of each move
  ActivationStore store_;
};

}  // namespace strata::detail

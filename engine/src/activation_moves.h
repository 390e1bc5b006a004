#pragma once

#include <vector>

#include "machine.h"

namespace strata {

/// Activations that leave the device for pinned memory and come back, on the lanes that chunks take. The host
/// waits for none of it: streams wait for each other. One thread; allocates nothing after construction.
class ActivationMoves {
 public:
  explicit ActivationMoves(Machine& machine);

  /// Queues `instr`, a move: a begin copies once the compute stream has come to it, an end lets the compute
  /// stream wait for that copy.
  Status run(const LoweredInstr& instr);

 private:
  Status copy(BufferView to, ConstBufferView from, Stream& lane, Event& done);

  Machine& machine_;
  std::vector<Event> done_;  // by move: its last copy
};

}  // namespace strata

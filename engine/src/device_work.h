#pragma once

#include "machine.h"

namespace strata {

/// What is done to a chunk that lives on the device beside what programs say: ops on the compute stream, one
/// a tensor, with the bits of what the CPU does to chunks in RAM.
Status accumulate_on_device(Machine& machine, ChunkId chunk, BufferView sum, BufferView grad, bool first);
Status take_leaves_on_device(Machine& machine, ChunkId chunk, BufferView sum);
/// Without an undo log: what is on the device is never updated on trust.
Status update_on_device(Machine& machine, const ChunkUpdate& update);

}  // namespace strata

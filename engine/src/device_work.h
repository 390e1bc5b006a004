#pragma once

#include "execution_context.h"

namespace strata {

/// What is done to a chunk that lives on the device beside what programs say: ops on the compute stream, one
/// a tensor, with the bits of what the CPU does to chunks in RAM.
Status queue_device_accumulate(ExecutionContext& context, ChunkId chunk, BufferView sum, BufferView grad,
                               bool first);
Status queue_device_norm_partials(ExecutionContext& context, ChunkId chunk, BufferView sum);
/// Without an undo log: what is on the device is never updated speculatively.
Status queue_device_update(ExecutionContext& context, const ChunkUpdate& update);

}  // namespace strata

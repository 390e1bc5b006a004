#pragma once

#include <strata/session/state_context.h>

#include "step/chunk_update.h"

namespace strata::detail {

/// Work on chunks that live on the device, apart from the programs': ops on a stream of the device, at least
/// one per tensor, with the same bits as the CPU's work on chunks in RAM. A view of a gradient begins with
/// the first element that is worked on.
Status queue_device_accumulate(StateContext& context, ChunkId chunk, BufferView sum, BufferView grad,
                               bool first, Stream& stream);
Status queue_device_norm_partials(StateContext& context, ChunkId chunk, BufferView sum, Stream& stream);
/// On the compute stream. Never uses an undo log: chunks on the device are not updated speculatively.
Status queue_device_update(StateContext& context, const ChunkUpdate& update);
/// The two passes of LAMB, between which ranks may add up norm partials.
Status queue_device_lamb_moments(StateContext& context, const ChunkUpdate& update);
Status queue_device_lamb_apply(StateContext& context, const ChunkUpdate& update);

/// ema_async() for all tensors of the chunk, with the weight of each one's step, or with 1 where the average
/// begins.
Status queue_device_ema(StateContext& context, const ChunkUpdate& update);

}  // namespace strata::detail

#pragma once

#include <span>

#include <strata/session/state_context.h>

#include "step/chunk_update.h"

namespace strata::detail {

/// Queues one update of a whole chunk where its states live: on the CPU, or on the device's compute stream.
/// `step` is read when the update runs. If this fails, nothing is queued. `of_trainer`: by tensor of the
/// layout, also read then, if parameters and gradients are a trainer's.
Status queue_update(StateContext& context, ChunkId chunk, const StepConstants& step, UndoAction undo,
                    const TrainerTensor* of_trainer = nullptr);
/// Queues that the moving average of the chunk's parameters begins with these.
Status queue_ema_start(StateContext& context, ChunkId chunk);
/// Prefetches those of `payloads` that live on the slow tier. Returns false if there is no room for all of
/// them.
Result<bool> prefetch_for_update(StateContext& context, ChunkId chunk, std::span<const Payload> payloads);
/// For the chunk's states on nvme: gives up their snapshots; keeps the present contents as snapshots in
/// addition to what is written from here on; returns to the snapshots.
Status commit_stored_states(StateContext& context, ChunkId chunk);
Status snapshot_stored_states(StateContext& context, ChunkId chunk);
void rollback_stored_states(StateContext& context, ChunkId chunk) noexcept;
/// Queues the write-back of the states that an update changed.
Status write_back_states(StateContext& context, ChunkId chunk);
/// Sets the constants of one step with `params`, for every rule.
Status set_constants(const StateContext& context, const cpuopt::OptimizerParams& params,
                     StepConstants& constants);

}  // namespace strata::detail

#pragma once

#include <span>

#include "chunk_update.h"
#include "execution_context.h"

namespace strata {

/// Queues one update of all of a chunk, where its states live: by the CPU, or on the compute stream of the
/// device. `step` is read when it runs. Nothing is queued where this fails.
Status queue_update(ExecutionContext& context, ChunkId chunk, const StepConstants& step, UndoAction undo);
/// Begins to read those of `payloads` that live on the slow tier. False where there is no room for all.
Result<bool> prefetch_for_update(ExecutionContext& context, ChunkId chunk, std::span<const Payload> payloads);
/// What nvme kept of the states of `chunk` is given up. Then: what it holds stays there beside what is
/// written from here on, or is again what it was then.
Status commit_stored_states(ExecutionContext& context, ChunkId chunk);
Status snapshot_stored_states(ExecutionContext& context, ChunkId chunk);
void rollback_stored_states(ExecutionContext& context, ChunkId chunk) noexcept;
/// Queues the way home of what an update wrote.
Status write_back_states(ExecutionContext& context, ChunkId chunk);
/// The constants of one step by `params`, for every rule.
Result<StepConstants> step_constants(const ExecutionContext& context, const cpuopt::OptimizerParams& params);

}  // namespace strata

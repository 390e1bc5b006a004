#pragma once

#include <span>

#include "chunk_update.h"
#include "machine.h"

namespace strata {

/// Queues one update of all of a chunk, where its states live: by the CPU, or on the compute stream of the
/// device. `step` is read when it runs. Nothing is queued where this fails.
Status queue_update(Machine& machine, ChunkId chunk, const StepConstants& step, Undo undo);
/// Begins to read those of `payloads` that live on the slow tier. False where there is no room for all.
Result<bool> fetch_for_update(Machine& machine, ChunkId chunk, std::span<const Payload> payloads);
/// What nvme kept of the states of `chunk` is given up. Then: what it holds stays there beside what is
/// written from here on, or is again what it was then.
Status accept_stored(Machine& machine, ChunkId chunk);
Status guard_stored(Machine& machine, ChunkId chunk);
void restore_stored(Machine& machine, ChunkId chunk) noexcept;
/// Queues the way home of what an update wrote.
Status send_states_home(Machine& machine, ChunkId chunk);
/// The constants of one step by `params`, for every rule.
Result<StepConstants> step_constants(const Machine& machine, const cpuopt::OptimizerParams& params);

}  // namespace strata

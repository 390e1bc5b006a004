#pragma once

#include <strata/engine/engine.h>

namespace strata {

/// The pinned memory that the placement of `plan`, laid out so far, shall leave to the undo log: what is
/// asked for; where nothing is, room for the parameters of what is updated speculatively, whose other states
/// may be kept by nvme.
std::uint64_t undo_reserve(const RunPlan& plan);

/// Chooses the chunks of `plan` that are updated before the norm is known, takes room for what they were, and
/// says so in its notes. Needs the placement.
void plan_undo_log(RunPlan& plan);

}  // namespace strata

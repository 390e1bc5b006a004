#pragma once

#include <strata/session/state_plan.h>
#include <strata/session/use_trace.h>

namespace strata {

/// Returns how much pinned memory the placement of `plan`, as far as it is laid out, shall leave to the undo
/// log: the amount requested, or else room for the parameters that are updated speculatively, as nvme may
/// keep the previous generation of their other states. `uses` is the training pass, here and below.
std::uint64_t undo_reserve(const StatePlan& plan, const UseTrace& uses);

/// Chooses the chunks that are updated before the norm is known, reserves memory for their previous states,
/// and adds a note. Needs the placement.
void plan_undo_log(StatePlan& plan, const UseTrace& uses);

}  // namespace strata

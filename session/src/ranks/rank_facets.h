#pragma once

#include <strata/session/pass_schedule.h>
#include <strata/session/state_context.h>

namespace strata::detail {

/// Checks that all ranks of the session have the same build, instruction set, settings and tensors, and those
/// with the same part of the model the same layout and sequence of collectives: otherwise they would wait for
/// each other, or compute something else. Every rank calls it; does nothing if there is one. Errors:
/// `invalid`, naming what differs, on all ranks.
Status check_ranks_agree(StateContext& context, const PassSchedule& training);

}  // namespace strata::detail

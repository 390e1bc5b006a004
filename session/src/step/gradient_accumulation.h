#pragma once

#include <strata/session/state_context.h>

namespace strata::detail {

/// Adds the gradient of a chunk, which a micro-batch has just completed, to the step's gradient, wherever
/// that lives, and drops it. `first`: the step's first micro-batch, whose gradient becomes the sum. `last`:
/// the norm partials of the sum are computed as well.
Status accumulate_gradient(StateContext& context, ChunkId chunk, bool first, bool last);

}  // namespace strata::detail

#pragma once

#include <strata/session/state_context.h>

namespace strata::detail {

/// Exchanges the gradient that a micro-batch of every rank has just completed, adds what belongs to this
/// rank's part to the step's gradient in `tier`, and drops it.
Status accumulate_from_all_ranks(StateContext& context, ChunkId chunk, bool first, Tier tier, Stream& stream);

/// After the last micro-batch: completes the step's gradient as far as this rank holds it.
Status complete_sum(StateContext& context, ChunkId chunk, Tier tier);

}  // namespace strata::detail

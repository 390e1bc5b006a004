#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>
#include <strata/align/rollout_batches.h>

namespace strata {

/// The rollouts of an iteration and all their token values as bytes with a digest, so that a run that is
/// resumed in the midst of the iteration goes on with them.
std::string rollouts_bytes(std::int64_t iteration, const RolloutBatches& batches);
/// Errors: `corrupt`; `invalid` for those of another iteration; those of RolloutBatches::set().
Status set_rollouts(std::string_view bytes, std::int64_t iteration, RolloutBatches& batches);

}  // namespace strata

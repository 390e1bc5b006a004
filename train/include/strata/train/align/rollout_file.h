#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/io/io.h>
#include <strata/train/align/rollout_batches.h>

namespace strata {

/// The rollouts of an iteration and all their token values as a file with a digest, so that a run that is
/// resumed in the midst of the iteration goes on with them.
Status write_rollouts(Io& io, const std::string& path, std::int64_t iteration, const RolloutBatches& batches);
/// Errors: `not_found`; `corrupt`; `invalid` for those of another iteration; those of RolloutBatches::set().
Status read_rollouts(Io& io, const std::string& path, std::int64_t iteration, RolloutBatches& batches);

}  // namespace strata

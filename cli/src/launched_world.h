#pragma once

#include <memory>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

#include "args.h"

namespace strata::cli {

/// The ranks that a launcher started with this one; null if it is alone. Errors: `unsupported` for a launcher
/// whose transport is missing; those of check_joined(), unless parallel.ranks=1 asks for a run of its own.
Result<std::unique_ptr<World>> open_launched_world(const Args& args);
/// The same for each rank of this process, of which there are args.ranks_per_process; empty if the process is
/// alone. Errors: also `invalid` for several without MPI.
Result<std::vector<std::unique_ptr<World>>> open_launched_worlds(const Args& args);

}  // namespace strata::cli

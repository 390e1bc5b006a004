#pragma once

#include <memory>

#include <strata/parallel/world.h>

#include "mpi/mpi_thread.h"

namespace strata::detail {

/// A world over the ranks of a started MPI. Blocks until all ranks have called it. `local`: of the ranks of
/// this process, if they are several. Errors: `lost_peer`.
Result<std::unique_ptr<World>> create_mpi_world(std::shared_ptr<MpiThread> thread,
                                                std::unique_ptr<World> local);

}  // namespace strata::detail

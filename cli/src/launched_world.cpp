#include "launched_world.h"

#include <strata/parallel/launch.h>
#include <strata/parallel/mpi_world.h>
#include <strata/runtime/str.h>

namespace strata::cli {

Result<std::unique_ptr<World>> open_launched_world(const Args& args) {
  STRATA_TRY_ASSIGN(const Launch launch, read_launch(args.environment));
  if (launch.processes == 1) return std::unique_ptr<World>();
  if (launch.launcher == Launch::Launcher::torchrun)
    return Status::error(
        Code::unsupported,
        str("torchrun started ", launch.processes, " processes (", launch.variable,
            "), which needs NCCL, and strata does not use it yet; use mpirun -np ", launch.processes));
  return open_mpi_world();
}

}  // namespace strata::cli

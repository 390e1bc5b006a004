#include "launched_world.h"

#include <strata/parallel/launch.h>
#include <strata/parallel/mpi_world.h>
#include <strata/parallel/nccl_world.h>
#include <strata/runtime/str.h>

namespace strata::cli {

Result<std::unique_ptr<World>> open_launched_world(const Args& args) {
  STRATA_TRY_ASSIGN(const Launch launch, read_launch(args.environment));
  if (launch.processes == 1) return std::unique_ptr<World>();
  if (launch.launcher == Launch::Launcher::mpi) return open_mpi_world();
  // Without MPI, ranks exchange everything through the memory of their GPUs.
  Result<std::unique_ptr<World>> world = open_nccl_world(args.environment);
  if (world.has_value()) return world;
  return Status::error(world.status().code(),
                       str("torchrun started ", launch.processes, " processes (", launch.variable,
                           "), which needs NCCL and a GPU for each: ", world.status().message(),
                           "; or use mpirun -np ", launch.processes));
}

Result<std::vector<std::unique_ptr<World>>> open_launched_worlds(const Args& args) {
  STRATA_TRY_ASSIGN(const Launch launch, read_launch(args.environment));
  if (args.ranks_per_process > 1 && launch.launcher != Launch::Launcher::mpi)
    return Status::error(Code::invalid, str("--ranks-per-process ", args.ranks_per_process,
                                            " needs mpirun or srun; in a process that was started alone, set "
                                            "parallel.ranks"));
  if (args.ranks_per_process > 1) return open_mpi_worlds(args.ranks_per_process);
  STRATA_TRY_ASSIGN(std::unique_ptr<World> world, open_launched_world(args));
  std::vector<std::unique_ptr<World>> worlds;
  if (world != nullptr) worlds.push_back(std::move(world));
  return worlds;
}

}  // namespace strata::cli

#include "launched_world.h"

#include <strata/parallel/launch.h>
#include <strata/parallel/mpi_world.h>
#include <strata/parallel/nccl_world.h>
#include <strata/runtime/str.h>
#include <strata/config/load_config.h>

namespace strata::cli {
namespace {

// A process that is told to be a run of its own, whoever started it: by one rank, or by ranks that are its
// own threads. Problems of the configuration are reported when it is used.
bool is_its_own_run(const Args& args) {
  const auto loaded = load_config(args);
  if (!loaded.has_value()) return false;
  const TrainConfig::Parallel& parallel = loaded->config.parallel;
  return parallel.ranks == 1 || parallel.transport == "threads";
}

using Worlds = std::vector<std::unique_ptr<World>>;

Result<Worlds> open_worlds(const Args& args, const Launch& launch) {
  if (launch.launcher == Launch::Launcher::mpi) return open_mpi_worlds(args.ranks_per_process);
  // Without MPI, ranks exchange everything through the memory of their GPUs.
  Result<std::unique_ptr<World>> world = open_nccl_world(args.environment);
  if (!world.has_value())
    return Status::error(world.status().code(),
                         str("torchrun started ", launch.processes, " processes (", launch.variable,
                             "), which needs NCCL and a GPU for each: ", world.status().message(),
                             "; or use mpirun -np ", launch.processes));
  Worlds worlds;
  worlds.push_back(*std::move(world));
  return worlds;
}

}  // namespace

Result<std::unique_ptr<World>> open_launched_world(const Args& args) {
  STRATA_TRY_ASSIGN(Worlds worlds, open_launched_worlds(args));
  return worlds.empty() ? std::unique_ptr<World>() : std::move(worlds.front());
}

Result<Worlds> open_launched_worlds(const Args& args) {
  STRATA_TRY_ASSIGN(const Launch launch, read_launch(args.environment));
  if (args.ranks_per_process > 1 && launch.launcher != Launch::Launcher::mpi)
    return Status::error(Code::invalid, str("--ranks-per-process ", args.ranks_per_process,
                                            " needs mpirun or srun; in a process that was started alone, set "
                                            "parallel.ranks"));
  if (launch.processes == 1 && args.ranks_per_process == 1) return Worlds();
  const bool is_mpi = launch.launcher == Launch::Launcher::mpi;
  if (!is_mpi && is_its_own_run(args)) return Worlds();
  Worlds worlds;
  if (launch.launcher != Launch::Launcher::other) {
    STRATA_TRY_ASSIGN(worlds, open_worlds(args, launch));
  }
  const int joined = worlds.empty() ? 1 : worlds.front()->size();
  const Status all = check_joined(launch, args.ranks_per_process, joined);
  if (all.is_ok()) return worlds;
  return is_its_own_run(args) && args.ranks_per_process == 1 ? Result<Worlds>(Worlds()) : all;
}

}  // namespace strata::cli

#pragma once

#include <memory>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// Whether this build can open a world over MPI, if the machine has an MPI library.
bool built_with_mpi() noexcept;

/// The world of the processes that `mpirun` or `srun` has started, one rank each; a process that was started
/// alone is a world of one. Once in the life of a process. Loads libstrata_mpi.so and with it libmpi, and
/// starts MPI on a thread of its own, which makes all calls of MPI.
///
/// Groups move host memory. A rank that destroys its world, or a group, has left it: whoever waits for it
/// gets `lost_peer`, and work still queued on the group fails. Queued work must have ended before the world
/// and its groups are all destroyed. Then the rank waits for the others to end, too, at most until none has
/// done so for a second; if some have not, it does not end MPI, and the launcher ends the run when the
/// process exits. So ranks that have nothing left to do call World::all_gather() before they end.
///
/// `watch`: until World::set_watch() is called.
///
/// Errors: `unsupported`, naming what is missing: MPI when strata was built, libstrata_mpi.so, or libmpi;
/// those of MPI when it starts.
Result<std::unique_ptr<World>> open_mpi_world(const WatchOptions& watch = {});

/// The same with several ranks in each process, which are its threads: element i belongs to the thread of the
/// i-th of them, and process p has the ranks from p * ranks_here on (endpoints: Dinan et al. 2013). Ranks of
/// one process exchange data by MPI, too. Errors: `invalid` unless 1 <= ranks_here <= 8; those of
/// open_mpi_world(), and those of MPI if processes differ in `ranks_here`.
Result<std::vector<std::unique_ptr<World>>> open_mpi_worlds(int ranks_here, const WatchOptions& watch = {});

}  // namespace strata

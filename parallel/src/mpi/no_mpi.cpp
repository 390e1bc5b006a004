// Defines the symbols of open_mpi_world.cpp in builds without MPI.
#include <strata/parallel/mpi_world.h>

namespace strata {

bool built_with_mpi() noexcept { return false; }

Result<std::unique_ptr<World>> open_mpi_world(const WatchOptions& watch) {
  return open_mpi_worlds(1, watch).status();
}
Result<std::vector<std::unique_ptr<World>>> open_mpi_worlds(int, const WatchOptions&) {
  return Status::error(Code::unsupported,
                       "this build has no MPI: install libopenmpi-dev and openmpi-bin, and build again");
}

}  // namespace strata

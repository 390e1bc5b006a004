#pragma once

#include <span>

namespace strata::detail {

/// Removes the names of the files through which OpenMPI's ranks on this machine share memory, of the ranks
/// with these numbers on the machine; the memory lives on while it is mapped. MPI_Finalize does it otherwise:
/// without it, and for a rank that was killed, the files would take memory until the machine restarts.
void remove_shared_segments(std::span<const int> local_ranks);

}  // namespace strata::detail

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// How this process was started.
struct Launch {
  enum class Launcher : std::uint8_t { none, mpi, torchrun, other };
  Launcher launcher = Launcher::none;  ///< other: one whose processes strata cannot join
  int processes = 1;                   ///< that the launcher started together
  std::string variable = {};           ///< the environment variable that says so
  std::string_view remedy = {};        ///< how to start them so that they find each other
};

/// Reads it from "NAME=value" strings: the variables of mpirun (Open MPI, MPICH), of srun with PMIx or PMI,
/// of torchrun, and of launchers whose processes strata cannot join. The first that is there counts, since
/// launchers are started by others. Errors: `invalid` for a number of processes that is none, naming the
/// variable.
Result<Launch> read_launch(std::span<const std::string> environment);

/// Checks that `joined` ranks found each other if `launch` started them with `ranks_per_process`. Errors:
/// `invalid` with the variable, both numbers and what to do: otherwise each would train alone.
Status check_joined(const Launch& launch, int ranks_per_process, int joined);

}  // namespace strata

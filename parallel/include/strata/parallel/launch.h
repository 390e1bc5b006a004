#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <strata/runtime/status.h>

namespace strata {

/// How this process was started.
struct Launch {
  enum class Launcher : std::uint8_t { none, mpi, torchrun };
  Launcher launcher = Launcher::none;
  int processes = 1;          ///< that the launcher started together
  std::string variable = {};  ///< the environment variable that says so
};

/// Reads it from "NAME=value" strings: the variables of mpirun (Open MPI, MPICH), of srun with PMIx or PMI,
/// or of torchrun. Errors: `invalid` for a number of processes that is none, naming the variable.
Result<Launch> read_launch(std::span<const std::string> environment);

}  // namespace strata

#pragma once

#include <span>
#include <string>

#include <strata/runtime/status.h>

#include "mpi/mpi_api.h"

namespace strata::detail {

/// Loads the first of the files that exists, for the life of the process. Errors: `unsupported`, naming the
/// files if none exists, or what the file lacks.
Result<const MpiApi*> load_mpi(std::span<const std::string> paths);

}  // namespace strata::detail

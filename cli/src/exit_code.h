#pragma once

#include <strata/runtime/status.h>

namespace strata::cli {

/// What the command returns to the shell; scripts branch on it.
enum ExitCode : int {
  kExitOk = 0,
  kExitInternal = 1,  ///< a bug
  kExitUsage = 2,     ///< command line or configuration
  kExitFit = 3,       ///< does not fit into the budgets or the memory
  kExitDiverged = 4,
  kExitIo = 5,
  kExitStopped = 75,  ///< stopped at a point that can be resumed (EX_TEMPFAIL)
};

int exit_code(const Status& status) noexcept;

}  // namespace strata::cli

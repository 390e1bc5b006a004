#pragma once

#include <string_view>

#include <strata/runtime/status.h>

namespace strata::cli {

/// The exit codes of the command. Scripts depend on them.
enum ExitCode : int {
  kExitOk = 0,
  kExitInternal = 1,  ///< a bug
  kExitUsage = 2,     ///< command line or configuration
  kExitFit = 3,       ///< does not fit in the budgets or the memory
  kExitDiverged = 4,
  kExitIo = 5,
  kExitLostPeer = 6,  ///< another rank failed
  kExitStopped = 75,  ///< stopped at a point that can be resumed (EX_TEMPFAIL)
};

struct ExitMeaning {
  int code;
  std::string_view text;
};
/// Their descriptions in `--help` and, word for word, in the user guide.
inline constexpr ExitMeaning kExitMeanings[] = {
    {kExitOk, "done"},
    {kExitInternal, "a bug, please report it; `verify`: the bits differ"},
    {kExitUsage,
     "wrong command line or configuration: a key, a value, a missing file, "
     "or something that this build or machine does not support"},
    {kExitFit, "does not fit: the budgets, the memory, or the threads that this machine allows"},
    {kExitDiverged, "diverged: a gradient is not finite"},
    {kExitIo, "reading or writing failed, or what was read is damaged"},
    {kExitLostPeer, "another rank of the run failed, ended or hangs; its own message says why"},
    {kExitStopped, "stopped by a signal or a budget, and can be resumed"},
};

int exit_code(const Status& status) noexcept;

}  // namespace strata::cli

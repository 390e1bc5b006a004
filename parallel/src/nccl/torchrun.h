#pragma once

#include <span>
#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The environment that torchrun gives a process.
struct TorchrunRank {
  int rank = 0, size = 1, local_rank = 0;
  std::string comm_id;  ///< "host:port", where rank 0 listens
};

/// From "NAME=value" strings. Errors: `invalid`, naming the variable.
Result<TorchrunRank> read_torchrun(std::span<const std::string> environment);

}  // namespace strata::detail

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "mpi/mpi_thread.h"

namespace strata::detail {

/// Every rank's text, by rank. Blocks the caller until all ranks of the group have called it.
Result<std::vector<std::string>> gather_texts(MpiThread& thread, Peers& peers, int tag,
                                              std::string_view text);

}  // namespace strata::detail

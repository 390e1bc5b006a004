#pragma once

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>

namespace strata::detail {

/// Cost of the bytes that a placement moves in a step, in seconds on a machine with a 20 GB/s link, a 2 GB/s
/// disk and 60 GB/s of RAM. Only the order of the results matters. A parameter is moved for each use, an
/// accumulated gradient for each micro-batch; the update on the CPU reads and writes all states.
double step_cost(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement);

}  // namespace strata::detail

#pragma once

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>

namespace strata::detail {

/// What a placement moves in a step, in seconds of a machine whose link carries 20 GB/s, whose disk 2 and
/// whose RAM 60: only the order of the answers matters. Times a payload crosses: a parameter for each use, a
/// sum for each micro-batch; the CPU's update reads and writes all states.
double step_cost(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement);

}  // namespace strata::detail

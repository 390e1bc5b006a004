#pragma once

#include <optional>

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>
#include <strata/offload/placement_planner.h>

#include "placement_windows.h"

namespace strata::detail {

/// No homes yet, and no windows.
Placement empty_placement(const ChunkLayout& layout);
/// Nothing where the chunk has no such payload.
void set_home(const ChunkLayout& layout, Placement& placement, PayloadKey key, Tier tier);

/// The homes within the budgets that move least in a step, with windows of this width; nothing where none
/// fit. `trace` may be reduced to its widest steps.
std::optional<Placement> find_homes(const ChunkLayout& layout, const AccessTrace& trace,
                                    const PlacementRequest& request, const WindowWidth& width);

}  // namespace strata::detail

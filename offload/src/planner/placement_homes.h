#pragma once

#include <optional>

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>
#include <strata/offload/placement_request.h>

#include "planner/placement_windows.h"

namespace strata::detail {

/// A placement without homes and windows.
Placement empty_placement(const ChunkLayout& layout);
/// Does nothing if the chunk has no such payload.
void set_home(const ChunkLayout& layout, Placement& placement, PayloadKey key, Tier tier);

/// Finds the homes within the budgets that move the fewest bytes in a step, with windows of this width;
/// nullopt if none fit. `trace` may be the result of prune_dominated_accesses().
std::optional<Placement> find_homes(const ChunkLayout& layout, const AccessTrace& trace,
                                    const PlacementRequest& request, const WindowWidth& width);
/// Whether find_homes() finds any.
bool any_homes_fit(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                   const WindowWidth& width);

}  // namespace strata::detail

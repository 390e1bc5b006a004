#pragma once

#include "machine.h"

namespace strata {

/// Lays out, places and lowers; no proof yet. `choose` may overrule the homes.
Result<std::unique_ptr<RunPlan>> draft_plan(const ProgramSet& programs, const EngineOptions& options,
                                            const std::function<void(const ChunkLayout&, Placement&)>& choose);

}  // namespace strata

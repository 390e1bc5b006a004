#pragma once

#include "execution_context.h"

namespace strata {

/// Lays out, places and lowers; no proof yet. `choose` may overrule the homes. `does_not_fit` says no more
/// than that: explain_refusal does, and costs many drafts.
Result<std::unique_ptr<RunPlan>> draft_plan(
    const ProgramSet& programs, const EngineOptions& options,
    const std::function<void(const ChunkLayout&, Placement&)>& choose);

/// The table for budgets that none of `choices` fits, with the smallest budgets that one of them does.
Status explain_refusal(std::span<const ProgramSet> choices, const EngineOptions& options);

}  // namespace strata

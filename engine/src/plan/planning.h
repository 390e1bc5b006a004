#pragma once

#include <functional>
#include <memory>
#include <span>

#include <strata/engine/run_plan.h>

namespace strata::detail {

/// Lays out, places and lowers, without the dry run. `choose` may override the homes. The error
/// `does_not_fit` has no details here: explain_refusal adds them at the cost of many drafts.
Result<std::unique_ptr<RunPlan>> draft_plan(
    const ProgramSet& programs, const SessionOptions& options,
    const std::function<void(const ChunkLayout&, Placement&)>& choose);

/// Returns the error with the table of budgets if none of `choices` fits, and the smallest budgets with which
/// one does.
Status explain_refusal(std::span<const ProgramSet> choices, const SessionOptions& options);

}  // namespace strata::detail

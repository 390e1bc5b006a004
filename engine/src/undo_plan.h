#pragma once

#include <strata/engine/engine.h>

namespace strata {

/// Chooses the chunks of `plan` that are updated before the norm is known, takes room for what they were, and
/// says so in its notes. Needs the placement.
void plan_undo(RunPlan& plan);

}  // namespace strata

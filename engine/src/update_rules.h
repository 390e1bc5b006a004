#pragma once

#include <strata/engine/engine.h>

namespace strata {

/// Gives every tensor of `plan` its rule: that of the first of EngineOptions::groups that names it, or the
/// optimizer's own, with weight decay where the model wants it. Errors: `invalid`, all of them: a group that
/// names no parameter, or none that is trained and that no group before it names; settings out of range.
Status make_update_rules(RunPlan& plan, const Program& model);

}  // namespace strata

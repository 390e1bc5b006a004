#pragma once

#include <strata/engine/engine.h>

namespace strata {

/// Gives every tensor of `plan` its rule: that of the first of EngineOptions::groups that matches it, or the
/// optimizer's own settings, with weight decay where the model allows it. Errors: `invalid`, listing all
/// problems: groups that match no parameter, or none that is trained and not matched by an earlier group;
/// settings out of range.
Status make_update_rules(RunPlan& plan, const Program& model);

}  // namespace strata

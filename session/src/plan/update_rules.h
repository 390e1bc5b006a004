#pragma once

#include <strata/session/state_plan.h>

namespace strata::detail {

/// Gives every tensor of `plan` its rule: that of the first of SessionOptions::groups that matches it, or the
/// optimizer's own settings, with weight decay where TensorTable::decays allows it. Errors: `invalid`,
/// listing all problems: groups that match no parameter, or none that is trained and not matched by an
/// earlier group; settings out of range.
Status make_update_rules(StatePlan& plan);

}  // namespace strata::detail

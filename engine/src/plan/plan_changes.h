#pragma once

#include <functional>
#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/engine/search_space.h>

namespace strata::detail {

/// One change of the options.
struct PlanChange {
  /// Changes options whose plan is the best so far.
  std::function<void(SessionOptions&, const RunPlan&)> apply;
  /// Whether its benefit depends on the programs. Such changes are tried first, with each of the programs and
  /// in all combinations.
  bool with_programs = false;
};

/// Returns the changes to be tried one after the other, in groups of which at most one change is kept.
std::vector<std::vector<PlanChange>> list_plan_changes(const SearchSpace& open);

}  // namespace strata::detail

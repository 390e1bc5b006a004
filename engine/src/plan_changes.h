#pragma once

#include <functional>
#include <vector>

#include <strata/engine/plan_search.h>

namespace strata {

/// One change of the options.
struct PlanChange {
  /// To options whose plan is the best so far.
  std::function<void(EngineOptions&, const RunPlan&)> apply;
  /// Whether what it gains hangs on the programs: with each of these it is tried first, and with others of
  /// its kind together.
  bool with_programs = false;
};

/// To be tried one after the other, in groups of which one is kept at most.
std::vector<std::vector<PlanChange>> list_plan_changes(const SearchSpace& open);

}  // namespace strata

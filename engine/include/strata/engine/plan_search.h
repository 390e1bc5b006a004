#pragma once

#include <span>

#include <strata/engine/forecast.h>
#include <strata/engine/search_space.h>

namespace strata {

/// Alternative ways to run the same step: same results, different duration.
struct PlanSearchRequest {
  /// Variants of one model, such as without and with recomputation. The first `compared` are compared by
  /// time. If none of these fits, the first of the others that fits is used.
  std::span<const ProgramSet> programs;
  std::size_t compared = 1;
  SearchSpace open;
  bool explains = true;  ///< a refusal includes the table of budgets, which takes many plans to compute
};

/// The plan that the search found.
struct FoundPlan {
  std::size_t programs = 0;  ///< index of the plan's program set among those given
  std::unique_ptr<const RunPlan> plan;
  SessionOptions options;  ///< the requested ones, with the changes that the search made
  Forecast forecast;
  std::size_t candidates = 0;  ///< number of plans that fit and were compared
};

/// Finds the plan whose step is the shortest by the forecast. It first tries all programs with every
/// combination of the changes whose benefit depends on the programs. Then it applies each open change to the
/// best plan so far and keeps it if it gains one percent or more, and repeats this as long as it helps.
/// Deterministic. Errors: `does_not_fit` as Engine::plan; `unsupported` as forecast().
Result<FoundPlan> search_plan(const PlanSearchRequest& choices, const SessionOptions& options,
                              const MachineProfile& machine);

}  // namespace strata

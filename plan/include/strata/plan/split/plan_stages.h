#pragma once

#include <functional>
#include <string>
#include <vector>

#include <strata/plan/job.h>

namespace strata {

struct LoadedConfig;

/// Loads, for a rank, what rank 0 has decided, with more assignments.
using LoadDecided = std::function<Result<LoadedConfig>(const std::vector<std::string>& assignments)>;
/// Plans a rank that follows what rank 0 has decided. What a stage of a pipeline does with its activations is
/// decided for that stage where rank 0's choice does not fit there; all copies of the stage decide alike.
/// `loaded` is then that of the plan. `basis`: as for rank 0; the first plan that fits is taken. Errors:
/// those of plan_job().
Result<PlannedJob> plan_follower(LoadedConfig& loaded, const LoadDecided& load, PlanBasis basis = {});

/// The plans of the stages of a pipeline behind that of rank 0, of the first copy of the model, as a run
/// would make them. `first`: what was decided for rank 0 by plan_job(). Errors: those of plan_job(), naming
/// the stage.
Result<std::vector<PlannedJob>> plan_later_stages(const LoadedConfig& first, const PlanBasis& basis);

}  // namespace strata

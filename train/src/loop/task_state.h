#pragma once

#include <string>

#include <strata/session/checkpoint.h>
#include <strata/train/align/policy_iterations.h>
#include <strata/plan/job.h>
#include <strata/train/observer.h>
#include <strata/batches/training_data.h>

// What a run has besides the states of its parameters, and keeps in its checkpoints: what the reference of
// DPO gives the pairs, and the answers of an iteration that is not over.

namespace strata::detail {

/// Computes the log-probabilities that the reference of a run gives the pairs, with the present parameters,
/// which are those with which the run starts. Does nothing for other runs. Errors: those of
/// compute_reference().
Status compute_references(Job& job, const TrainConfig& config, const TrainingData& training_data,
                          Observer& observer);

/// What a checkpoint after `steps` is to have. `policy` may be null.
TaskState task_state(const TrainingData& training_data, const PolicyIterations* policy, std::int64_t steps);

/// Sets what the checkpoint in `folder` has; of a checkpoint from before it had that, what is in the folder
/// of its run. `policy` may be null. Errors: `corrupt`, also if something is missing; `invalid` for the
/// reference of other data.
Status load_task_state(Io& io, const TrainConfig& config, const std::string& folder, const std::string& run,
                       const TrainingData& training_data, PolicyIterations* policy);

}  // namespace strata::detail

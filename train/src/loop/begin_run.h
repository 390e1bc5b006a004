#pragma once

#include <string>
#include <vector>

#include <strata/runtime/log.h>
#include <strata/train/run_task.h>

#include "loop/active_run.h"

// From the plan of a run to its first step.

namespace strata {

/// Allocates what the plan says, and starts the engine.
Status start_job(ActiveRun& active);

/// Tells the user what was decided, and what is slower than it could be.
void report_start(const ActiveRun& active, const TrainingData& training_data, Observer& observer, Log& log);

/// Fills the states from the newest of the checkpoints that is whole, or with initial values if there is
/// none, and sets what the task of the run needs besides them. All ranks call it.
Status fill_states(ActiveRun& active, const std::vector<std::string>& checkpoints, const std::string& path,
                   RunTask& task, Observer& observer);

/// Writes what the folder of a run has from its beginning on.
Status begin_folder(const ActiveRun& active, const TrainingData& training_data, const RunTask& task,
                    RunFolder& folder);

}  // namespace strata

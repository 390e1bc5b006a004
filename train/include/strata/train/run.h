#pragma once

#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/signals.h>
#include <strata/runtime/status.h>
#include <strata/train/observer.h>
#include <strata/train/run_request.h>
#include <strata/train/stop_reason.h>

namespace strata {

class World;

/// How a run ended, or this part of it.
struct RunResult {
  StopReason stop_reason = StopReason::finished;
  std::string run;          ///< the run folder
  std::string summary;      ///< text for the user; ends with a newline
  std::string why_stopped;  ///< "by a signal"; empty if all steps are done
};

/// Runs a training, with several ranks the part of one of them: locks the run folder, loads or trains the
/// tokenizer, plans, resumes from the newest checkpoint, trains, changes budgets on request, validates, and
/// writes the run folder. Blocks until it ends; `signals` may end it early. With several ranks, rank 0 does
/// all that, its configuration is that of all, and the others follow it: they write only their parts of
/// checkpoints, and report nothing. `world`: the ranks that a launcher started; null: there is one process,
/// and parallel.ranks of them are its threads. `observer` outlives it, since it is told of ranks that are
/// late. Errors: those of the configuration (`invalid`), of the plan
/// (`does_not_fit`), of files, and `diverged`. Training states that are consistent are saved before an error
/// is returned.
Result<RunResult> run_training(const RunRequest& request, Observer& observer, Signals& signals,
                               World* world = nullptr);

/// The same for all ranks of this process, which are its threads; returns how the first one ended, or the
/// error of another that it ended by. Returns when all ranks of the run have ended.
Result<RunResult> run_training_of_ranks(const RunRequest& request, Observer& observer, Signals& signals,
                                        std::vector<std::unique_ptr<World>> worlds);

}  // namespace strata

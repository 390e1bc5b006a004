#pragma once

#include <string>

#include <strata/runtime/signals.h>
#include <strata/train/load_config.h>
#include <strata/train/observer.h>
#include <strata/train/trainer.h>

namespace strata {

/// What to train, and where its results go.
struct SessionRequest : ConfigRequest {
  std::string out_dir;     ///< the run folder; empty: runs/<preset>-<time>
  std::string resume;      ///< the run folder of a run to continue; empty: a new run
  bool overwrite = false;  ///< `out_dir` may hold an earlier run, which is removed
};

struct SessionResult {
  StopReason stop_reason = StopReason::finished;
  std::string run;          ///< the run folder
  std::string summary;      ///< text for the user; ends with a newline
  std::string why_stopped;  ///< "by a signal"; empty if all steps are done
};

/// Runs a training session: locks the run folder, loads or trains the tokenizer, plans, resumes from the
/// newest checkpoint, trains, changes budgets on request, validates, and writes the run folder. Blocks until
/// it ends; `signals` may end it early. Errors: those of the configuration (`invalid`), of the plan
/// (`does_not_fit`), of files, and `diverged`. Training states that are consistent are saved before an error
/// is returned.
Result<SessionResult> run_session(const SessionRequest& request, Observer& observer, Signals& signals);

}  // namespace strata

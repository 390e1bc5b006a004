#pragma once

#include <string>

#include <strata/config/config_request.h>
#include <strata/train/task_kind.h>

namespace strata {

/// A request to train: the configuration, and where the results go.
struct RunRequest : ConfigRequest {
  std::string out_dir;             ///< the run folder; empty: runs/<preset>-<time>
  std::string resume;              ///< the run folder of a run to continue; empty: a new run
  bool overwrite = false;          ///< `out_dir` may hold an earlier run, which is removed
  TaskKinds tasks = text_tasks();  ///< the kinds of runs that it may be; static data
};

}  // namespace strata

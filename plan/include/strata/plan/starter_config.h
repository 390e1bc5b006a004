#pragma once

#include <string>
#include <vector>

#include <strata/config/load_config.h>
#include <strata/offload/machine_profile.h>
#include <strata/plan/job.h>

namespace strata {

/// A user's answers about a new run.
struct StarterAnswers {
  std::string model;     ///< a Hugging Face folder, or the size of a model to train from scratch (5m, 1.3b)
  std::string data;      ///< files to train on, as in data.train
  std::string task;      ///< one of train_tasks(), or auto: the first of them that fits
  std::string nvme_dir;  ///< a folder for what does not fit into RAM; empty: there is none
};

/// A configuration that fits this machine.
struct StarterConfig {
  std::string toml;  ///< has a comment for every key
  std::string task;
  double step_s = 0;        ///< forecast; 0: there was no profile
  double tokens_per_s = 0;  ///< likewise
  LoadedConfig loaded;
  PlannedJob job;
};

/// memory.backend of such a configuration: the GPU, if there is one.
std::string starter_backend();

/// Plans the run with micro-batches of 1, 2, 4 and 8 sequences, 16 sequences a step, and takes the fastest by
/// the forecast, or without a profile the largest that fits. Budgets are those that this machine has now.
/// Errors: `invalid`, `not_found`: of the answers; `does_not_fit` if no task fits.
Result<StarterConfig> make_starter_config(const StarterAnswers& answers,
                                          const std::vector<std::string>& environment,
                                          const MachineProfile* profile);

}  // namespace strata

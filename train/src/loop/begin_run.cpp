#include "loop/begin_run.h"

#include <strata/config/load_config.h>
#include <strata/runtime/str.h>
#include <strata/plan/plan_text.h>
#include <strata/train/resume.h>
#include <strata/batches/run_length.h>
#include <strata/train/start_notes.h>

#include <strata/infer/initial_states.h>
#include "run/run_files.h"
#include <strata/config/run_paths.h>
#include <strata/infer/load_checkpoint.h>

namespace strata {

Status start_job(ActiveRun& active) {
  STRATA_TRY_ASSIGN(active.job, Job::start(active.loaded.config, *active.planned.plan, active.io,
                                           active.trace, active.world));
  return {};
}

void report_start(const ActiveRun& active, const TrainingData& training_data, Observer& observer, Log& log) {
  const TrainConfig& config = active.loaded.config;
  for (const std::string& note : start_notes(config)) observer.on_message(note);
  for (const std::string& note : training_data.notes()) observer.on_message(str("data     ", note));
  observer.on_message(str("data     ", run_length_text(config, training_data)));
  for (const std::string& warning : run_length_warnings(config, training_data)) observer.on_warning(warning);
  observer.on_message(start_table(config, active.planned, nvme_text(active.job->engine())));
  if (const std::string note = active.job->engine().nvme_note();
      note != "not used" && note != "io_uring, O_DIRECT, registered buffers")
    log.warn("the nvme tier does not use its fastest I/O path: ", note);
  log.debug(active.planned.plan->of(ProgramRole::train).code.size(), " instructions per micro-batch, ",
            active.planned.plan->layout.n_chunks(), " chunks");
}

Status fill_states(ActiveRun& active, const std::vector<std::string>& checkpoints, const std::string& path,
                   RunTask& task, Observer& observer) {
  const TrainConfig& config = active.loaded.config;
  Engine& engine = active.job->engine();
  if (checkpoints.empty()) {
    STRATA_TRY(set_initial_states(engine, config, active.io));
    if (!active.request.resume.empty())
      observer.on_message(str(path, " has no checkpoint yet: starting from the beginning"));
    return task.begin(engine, observer);
  }
  const auto warn = [&](std::string_view text) { observer.on_warning(text); };
  const auto load_task = [&](const std::string& checkpoint) {
    return task.resume(active.io, checkpoint, path);
  };
  STRATA_TRY_ASSIGN(const std::string from,
                    load_newest_checkpoint(engine, config, checkpoints, active.io, warn, load_task));
  STRATA_TRY_ASSIGN(active.resumed, read_manifest(active.io, from));
  observer.on_message(str("resuming from ", from));
  return {};
}

Status begin_folder(const ActiveRun& active, const TrainingData& training_data, const RunTask& task,
                    RunFolder& folder) {
  const LoadedConfig& loaded = active.loaded;
  STRATA_TRY_ASSIGN(const auto files,
                    run_files(loaded.config, training_data, !active.request.resume.empty(), active.io));
  const std::int64_t steps = active.job->engine().steps();
  STRATA_TRY(folder.begin(steps, run_config_toml(active.io, loaded.tree, folder.path()), files,
                          steps == loaded.config.train.steps && task.samples_again()));
  return folder.write("plan.json", plan_json(loaded.config, *active.planned.plan, active.planned.recompute));
}

}  // namespace strata

#include "loop/active_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/load_config.h>
#include <strata/session/checkpoint.h>
#include <strata/runtime/str.h>
#include <strata/train/budget_request.h>
#include <strata/plan/plan_text.h>
#include <strata/train/resume.h>
#include <strata/train/run_identity.h>
#include <strata/batches/run_length.h>

#include <strata/config/run_paths.h>
#include <strata/infer/load_checkpoint.h>
#include <strata/config/run_layout.h>

namespace strata {
namespace {

// The request for the run's resolved configuration with the requested budgets.
ConfigRequest request_for_budgets(const ConfigRequest& request, const std::string& run,
                                  const std::vector<std::string>& asked) {
  ConfigRequest given = request;
  given.preset.clear();
  given.init.clear();
  given.adapter.clear();
  given.items = {str(run, "/", kResolvedConfig)};
  given.items.insert(given.items.end(), asked.begin(), asked.end());
  std::erase_if(given.environment, [](const std::string& v) { return v.starts_with("STRATA_MEMORY_"); });
  return given;
}

bool has_same_budgets(const TrainConfig::Memory& a, const TrainConfig::Memory& b) {
  return a.device_bytes == b.device_bytes && a.pinned_bytes == b.pinned_bytes && a.nvme_bytes == b.nvme_bytes;
}

// Replaces the engine by one for `plan` with the states of the checkpoint `saved`.
Status restart_from_checkpoint(ActiveRun& active, const TrainConfig& config, const RunPlan& plan,
                               const std::string& saved) {
  STRATA_TRY(active.job->restart(config, plan, active.io, active.trace));
  return load_run_checkpoint(active.job->engine(), config, saved, active.io).status();
}

// The new plan failed to start after all. Errors: if the old one cannot start again either.
Status return_to_old_plan(ActiveRun& active, Trainer& trainer, const std::string& run, Observer& observer,
                          const std::string& what, const std::string& saved, const Status& why) {
  STRATA_TRY(restart_from_checkpoint(active, active.loaded.config, *active.planned.plan, saved)
                 .annotate(str("continuing with ", what, " failed (", why.message(),
                               "), and so did the old budgets; --resume ", run, " continues from ", saved)));
  trainer.continue_in(*active.job);
  observer.on_message(str("budget change failed (", what, "); training continues with the old budgets from ",
                          saved, ": ", why.message()));
  return {};
}

// Describes the plan that now runs in the folder of the run.
Status write_plan(const ActiveRun& active, RunFolder& folder) {
  STRATA_TRY(folder.write(kResolvedConfig, run_config_toml(active.io, active.loaded.tree, folder.path())));
  return folder.write("plan.json",
                      plan_json(active.loaded.config, *active.planned.plan, active.planned.recompute));
}

}  // namespace

std::string nvme_text(const Engine& engine) { return engine.nvme_note() + paths_text(engine.nvme_paths()); }

// From here on the run uses its copy of the tokenizer. Keys that depend on the machine (io.engine,
// log.progress) stay `auto`, because the run may be resumed on another machine.
void resolve_data_autos(LoadedConfig& loaded, const std::string& path, const TrainingData& training_data) {
  if (loaded.tree.is_auto("data.packing"))
    loaded.tree.resolve("data.packing", training_data.packing(),
                        training_data.packing() == "pack"
                            ? "some tokens are not in the loss, or records are fine-tuned on"
                            : "all tokens are in the loss");
  if (loaded.tree.is_auto("data.tokenizer"))
    loaded.tree.resolve(
        "data.tokenizer", path + "/tokenizer.json",
        loaded.config.model.from.empty() ? "trained on data.train" : "the tokenizer of model.from");
}

// A request is refused before the present engine is destroyed. After that the states are in the checkpoint.
// If the new plan fails, training restarts with the old one. The folder describes the old plan until the new
// one runs.
Status change_budgets(ActiveRun& active, Trainer& trainer, const TrainingData& training_data,
                      RunFolder& folder, Observer& observer) {
  const BudgetRequest request(active.io, folder.path());
  const auto asked = request.consume();
  if (request.is_pending()) trainer.ignore_requests();
  const std::string what = asked.has_value() ? fmt::format("{}", fmt::join(*asked, " ")) : "other budgets";
  const auto refused = [&](const Status& why) {
    observer.on_message(
        str("budget change refused (", what, "); training continues with the old budgets: ", why.message()));
    return Status::ok();
  };
  if (!asked.has_value()) return refused(asked.status());
  auto loaded = load_config(request_for_budgets(active.request, folder.path(), *asked));
  if (!loaded.has_value()) return refused(loaded.status());
  decide_by_data(*loaded, training_data);
  if (const Status same = check_identity(run_identity(active.loaded.config, training_data),
                                         run_identity(loaded->config, training_data));
      !same.is_ok())
    return refused(same);
  if (has_same_budgets(loaded->config.memory, active.loaded.config.memory)) return {};
  auto planned = plan_job(*loaded, active.basis());
  if (!planned.has_value()) return refused(planned.status());
  if (const Status room = active.job->check_room(loaded->config, *planned->plan, active.io); !room.is_ok())
    return refused(room);
  if (const Status writes = trainer.check_budget_change(*planned->plan); !writes.is_ok())
    return refused(writes);
  STRATA_TRY_ASSIGN(const std::string saved, trainer.save_for_restart());
  if (const Status started = restart_from_checkpoint(active, loaded->config, *planned->plan, saved);
      !started.is_ok())
    return return_to_old_plan(active, trainer, folder.path(), observer, what, saved, started);
  active.planned = *std::move(planned);
  active.loaded = *std::move(loaded);
  resolve_data_autos(active.loaded, folder.path(), training_data);
  STRATA_TRY(write_plan(active, folder));
  trainer.continue_in(*active.job);
  observer.on_message(
      str("continuing with ", what, "\n",
          start_table(active.loaded.config, active.planned, nvme_text(active.job->engine()))));
  return {};
}

}  // namespace strata

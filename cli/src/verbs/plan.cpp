#include <strata/runtime/str.h>

#include "exit_code.h"
#include "load_config.h"
#include "machine/forecast_text.h"
#include "machine/model_shapes.h"
#include "machine/profile_cache.h"
#include "training/job.h"
#include "training/write_budget.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

/// A plan, and what its step takes on a machine that is known.
struct Planned {
  PlannedJob job;
  std::optional<MachineProfile> machine;
  std::string note;  ///< why there is none, or how far it is to be trusted
};

// The settings that follow from the options stand before the user's own, which win.
Result<LoadedConfig> load(const Args& args, const std::optional<MachineProfile>& machine) {
  Args given = args;
  if (args.params != 0) {
    STRATA_TRY_ASSIGN(const std::vector<std::string> model, model_of_size(args.params));
    given.items.insert(given.items.begin(), model.begin(), model.end());
  }
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  if (!machine || machine->memory[2] == 0 || loaded.tree.entry("memory.nvme").origin != "default")
    return loaded;
  given.items.insert(given.items.begin(), str("memory.nvme=", machine->memory[2]));
  return load_config(given);
}

Result<Planned> plan(const Args& args, LoadedConfig& loaded, std::optional<MachineProfile> machine) {
  Planned planned;
  const bool elsewhere = machine.has_value();
  if (!machine) {
    STRATA_TRY_ASSIGN(CachedProfile cached, cached_profile(posix_io(), profile_path(args.environment),
                                                           machine_name(loaded.config.cpu.share.threads())));
    machine = std::move(cached.profile);
    planned.note = machine ? cached.warning
                           : std::string("no forecast: strata bench measures this machine, --machine names another");
  }
  STRATA_TRY_ASSIGN(planned.job, plan_job(loaded, {machine ? &*machine : nullptr, elsewhere}));
  planned.machine = std::move(machine);
  return planned;
}

}  // namespace

int run_plan(const Args& args) {
  std::optional<MachineProfile> machine;
  if (!args.machine.empty()) {
    auto named = machine_named(args.machine);
    if (!named.has_value()) return print_error(args, "plan", named.status().annotate("--machine"));
    machine = *std::move(named);
  }
  auto loaded = load(args, machine);
  if (!loaded.has_value()) return print_error(args, "plan", loaded.status());
  const auto planned = plan(args, *loaded, std::move(machine));
  if (!planned.has_value()) return print_error(args, "plan", planned.status());
  const TrainConfig& config = loaded->config;
  const RunPlan& run = *planned->job.plan;
  if (const Status enough = check_write_budget(config, run); !enough.is_ok())
    return print_error(args, "plan", enough);
  const double tokens = tokens_per_step(config);
  if (args.json) {
    print(args.out, plan_json(config, run, planned->job.recompute,
                              planned->machine ? forecast_json(*planned->job.forecast, *planned->machine, tokens)
                                               : std::string()));
    return kExitOk;
  }
  print(args.out, start_table(config, run, planned->job.recompute, "opened when the run starts"));
  if (planned->machine) print(args.out, forecast_text(*planned->job.forecast, *planned->machine, tokens));
  if (!planned->note.empty()) print(args.out, planned->note + "\n");
  return kExitOk;
}

}  // namespace strata::cli

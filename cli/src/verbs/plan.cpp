#include <algorithm>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "exit_code.h"
#include "load_config.h"
#include "machine/forecast_text.h"
#include "machine/model_shapes.h"
#include "machine/profile_cache.h"
#include "machine/what_if.h"
#include "training/job.h"
#include "training/write_budget.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

/// The machine that a plan is for: another one, this one where it has been measured, or nothing known.
struct Basis {
  std::optional<MachineProfile> profile;
  bool elsewhere = false;
  std::string note;  ///< why there is none, or how far it is to be trusted

  PlanBasis plan_basis(bool explains = true) const {
    return {profile ? &*profile : nullptr, elsewhere, explains};
  }
};

Result<Basis> basis_of(const Args& args) {
  Basis basis;
  if (!args.machine.empty()) {
    auto named = machine_named(args.machine);
    if (!named.has_value()) return named.status().annotate("--machine");
    basis.profile = *std::move(named);
    basis.elsewhere = true;
    return basis;
  }
  STRATA_TRY_ASSIGN(const CoreShare share, share_of_this_process(args.environment, {}));
  STRATA_TRY_ASSIGN(CachedProfile cached, cached_profile(posix_io(), profile_path(args.environment),
                                                         machine_name(share.threads())));
  basis.profile = std::move(cached.profile);
  basis.note = basis.profile
                   ? cached.warning
                   : std::string("no forecast: strata bench measures this machine, --machine names another");
  return basis;
}

// Where the user says nothing of the same key.
void add_settings(Args& args, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('=') + 1);
    if (std::none_of(args.items.begin(), args.items.end(),
                     [&](const std::string& item) { return item.starts_with(key); }))
      args.items.push_back(setting);
  }
}

Result<LoadedConfig> load(const Args& args, const Basis& basis) {
  Args given = args;
  if (args.params != 0) {
    STRATA_TRY_ASSIGN(const std::vector<std::string> model, model_of_size(args.params));
    add_settings(given, model);
  }
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  if (!basis.elsewhere || basis.profile->memory[2] == 0 ||
      loaded.tree.entry("memory.nvme").origin != "default")
    return loaded;
  add_settings(given, {str("memory.nvme=", basis.profile->memory[2])});
  return load_config(given);
}

// The same run with other budgets.
ForecastWith forecasts_of(const Args& args, const Basis& basis) {
  return [&args, &basis](const TierBytes& budgets) -> Result<std::optional<Forecast>> {
    std::vector<std::string> overrides;
    for (std::size_t t = 0; t < kTiers; ++t)
      overrides.push_back(str("memory.", to_string(static_cast<Tier>(t)), "=",
                              budgets[t] == kUnlimited ? std::string("unlimited") : str(budgets[t])));
    STRATA_TRY_ASSIGN(LoadedConfig loaded, load(overridden(args, overrides), basis));
    auto planned = plan_job(loaded, basis.plan_basis(false));
    if (planned.has_value()) return std::optional(*planned->forecast);
    if (planned.status().code() == Code::does_not_fit) return std::optional<Forecast>();
    return planned.status();
  };
}

std::string budgets_text(const TierBytes& budgets) {
  return str("memory.device=", format_bytes(budgets[0]), " memory.pinned=", format_bytes(budgets[1]));
}

Status plan(const Args& args) {
  STRATA_TRY_ASSIGN(const Basis basis, basis_of(args));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load(args, basis));
  STRATA_TRY_ASSIGN(const PlannedJob job, plan_job(loaded, basis.plan_basis()));
  const TrainConfig& config = loaded.config;
  const RunPlan& run = *job.plan;
  STRATA_TRY(check_write_budget(config, run));
  const double tokens = tokens_per_step(config);
  if ((args.sweep || args.optimize) && !job.forecast)
    return Status::error(
        Code::invalid,
        "--sweep and --optimize need a machine: strata bench measures this one, --machine names another");
  const ForecastWith with = forecasts_of(args, basis);
  if (args.sweep) {
    STRATA_TRY_ASSIGN(const Sweep sweep, sweep_budgets(run.options.budgets, with));
    print(args.out, args.json ? sweep_json(sweep, tokens) : sweep_text(sweep, tokens));
    return {};
  }
  if (args.json) {
    print(args.out,
          plan_json(config, run, job.recompute,
                    job.forecast ? forecast_json(*job.forecast, *basis.profile, tokens) : std::string()));
    return {};
  }
  print(args.out, start_table(config, job, "opened when the run starts"));
  if (job.forecast) {
    print(args.out, forecast_text(*job.forecast, *basis.profile, tokens));
    STRATA_TRY_ASSIGN(const std::string change, next_best_change(run.options.budgets, *job.forecast, with));
    print(args.out, change);
  }
  if (args.optimize) {
    STRATA_TRY_ASSIGN(const TierBytes enough, sufficient_budgets(run.options.budgets, *job.forecast, with));
    print(args.out, str("as fast to a fiftieth with ", budgets_text(enough), "\n"));
  }
  if (!basis.note.empty()) print(args.out, basis.note + "\n");
  return {};
}

}  // namespace

int run_plan(const Args& args) {
  const Status status = plan(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "plan", status);
}

}  // namespace strata::cli

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "exit_code.h"
#include "load_config.h"
#include "machine/forecast_text.h"
#include "machine/model_shapes.h"
#include "machine/profile_cache.h"
#include "machine/what_if.h"
#include "training/plan_text.h"
#include "training/start_notes.h"
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

Result<std::optional<MachineProfile>> named_machine(const Args& args) {
  if (args.machine.empty()) return std::optional<MachineProfile>();
  auto named = load_machine_profile(args.machine);
  if (!named.has_value()) return named.status().annotate("--machine");
  return std::optional(*std::move(named));
}

Result<Basis> basis_of(const Args& args, std::optional<MachineProfile> elsewhere, LoadedConfig& loaded) {
  Basis basis;
  basis.elsewhere = elsewhere.has_value();
  if (basis.elsewhere) {
    basis.profile = std::move(elsewhere);
    return basis;
  }
  resolve_backend(loaded);
  STRATA_TRY_ASSIGN(CachedProfile cached,
                    profile_here(posix_io(), args.environment, loaded.config.memory.backend,
                                 loaded.config.cpu.share.threads()));
  basis.profile = std::move(cached.profile);
  basis.note = basis.profile ? cached.warning
                             : str("no forecast: strata bench",
                                   loaded.config.memory.backend == "cuda" ? " --backend cuda" : "",
                                   " measures this machine, --machine names another");
  return basis;
}

// What the machine and the size that were named say, where the user says nothing of the same key.
Result<LoadedConfig> load(const Args& args, const std::optional<MachineProfile>& elsewhere) {
  Args given = args;
  if (!args.params.empty()) {
    STRATA_TRY_ASSIGN(const double parameters, parse_parameter_count(args.params));
    STRATA_TRY_ASSIGN(const std::vector<std::string> model, model_of_size(parameters));
    given = completed(given, model);
  }
  ConfigLayer machine;
  if (elsewhere && elsewhere->memory[2] > 0)
    machine = {elsewhere->name, {{"memory.nvme", str(elsewhere->memory[2])}}};
  return load_config(given, std::move(machine));
}

// The same run with other budgets.
ForecastWith forecasts_of(const Args& args, const Basis& basis) {
  return [&args, &basis](const TierBytes& budgets) -> Result<std::optional<Forecast>> {
    std::vector<std::string> overrides;
    for (std::size_t t = 0; t < kTiers; ++t)
      overrides.push_back(str("memory.", to_string(static_cast<Tier>(t)), "=",
                              budgets[t] == kUnlimited ? std::string("unlimited") : str(budgets[t])));
    STRATA_TRY_ASSIGN(LoadedConfig loaded,
                      load(overridden(args, overrides), basis.elsewhere ? basis.profile : std::nullopt));
    auto planned = plan_job(loaded, basis.plan_basis(false));
    if (planned.has_value()) return std::optional(*planned->forecast);
    if (planned.status().code() == Code::does_not_fit) return std::optional<Forecast>();
    return planned.status();
  };
}

std::string budgets_text(const TierBytes& budgets) {
  const auto text = [](std::uint64_t bytes) {
    return bytes == kUnlimited ? std::string("unlimited") : str(bytes);
  };
  return str("memory.device=", text(budgets[0]), " memory.pinned=", text(budgets[1]));
}

Status plan(const Args& args) {
  STRATA_TRY_ASSIGN(std::optional<MachineProfile> elsewhere, named_machine(args));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load(args, elsewhere));
  STRATA_TRY_ASSIGN(const Basis basis, basis_of(args, std::move(elsewhere), loaded));
  const std::optional<MachineProfile> machine = basis.elsewhere ? basis.profile : std::nullopt;
  STRATA_TRY_ASSIGN(const PlannedJob job,
                    plan_or_split(args, loaded, basis.plan_basis(),
                                  [&](const Args& given) { return load(given, machine); }));
  const TrainConfig& config = loaded.config;
  const RunPlan& run = *job.plan;
  STRATA_TRY(check_write_budget(config, run));
  const double tokens = tokens_per_step(config);
  if ((args.sweep || args.optimize) && !job.forecast)
    return Status::error(Code::invalid,
                         job.chosen_by.empty()
                             ? std::string("--sweep and --optimize need a machine: strata bench "
                                           "measures this one, --machine names another")
                             : "--sweep and --optimize need a forecast; " + job.chosen_by);
  // Of micro-batches as they are now.
  const Args as_planned = job.split.empty()
                              ? args
                              : overridden(args, {str("train.micro_batch=", config.train.micro_batch),
                                                  str("train.grad_accum=", config.train.grad_accum)});
  const ForecastWith with = forecasts_of(as_planned, basis);
  if (args.sweep) {
    STRATA_TRY_ASSIGN(const Sweep sweep, sweep_budgets(run.options.budgets, run.options.capacity, with));
    print(args.out, args.json ? sweep_json(sweep, tokens) : sweep_text(sweep, tokens));
    return {};
  }
  if (args.json) {
    print(args.out,
          plan_json(config, run, job.recompute,
                    job.forecast ? forecast_json(*job.forecast, *basis.profile, tokens, job.clipped_step_s)
                                 : std::string()));
    return {};
  }
  for (const std::string& note : start_notes(config)) print(args.out, note + "\n");
  print(args.out, start_table(config, job, "opened when the run starts"));
  if (job.forecast) {
    print(args.out, forecast_text(*job.forecast, *basis.profile, tokens, job.clipped_step_s) +
                        unpriced_text(run.train, *basis.profile));
    STRATA_TRY_ASSIGN(const std::string change,
                      next_best_change(run.options.budgets, run.options.capacity, *job.forecast, with));
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

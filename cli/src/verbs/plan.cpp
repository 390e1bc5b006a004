#include <algorithm>

#include <strata/engine/forecast_ranks.h>
#include <strata/profile/budget_sweep.h>
#include <strata/profile/forecast_text.h>
#include <strata/profile/model_shapes.h>
#include <strata/profile/next_change.h>
#include <strata/profile/profile_cache.h>
#include <strata/profile/rank_timeline.h>
#include <strata/profile/stages_text.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/config/key_facts.h>
#include <strata/config/load_config.h>
#include <strata/plan/split/plan_stages.h>
#include <strata/plan/plan_text.h>
#include <strata/train/start_notes.h>
#include <strata/plan/write_budget.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/plan_layouts.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

/// The machine that a plan is for: another one, this one with its measured profile, or this one without a
/// profile.
struct Basis {
  std::optional<MachineProfile> profile;
  bool other_machine = false;
  std::string note;  ///< why there is no profile, or why it may be wrong

  PlanBasis plan_basis(bool explain_refusal = true) const {
    return {profile ? &*profile : nullptr, other_machine, explain_refusal};
  }
};

Result<std::optional<MachineProfile>> named_machine(const Args& args) {
  if (args.machine.empty()) return std::optional<MachineProfile>();
  auto named = load_machine_profile(args.machine);
  if (!named.has_value()) return named.status().annotate("--machine");
  return std::optional(*std::move(named));
}

Result<Basis> basis_of(const Args& args, std::optional<MachineProfile> other_machine, LoadedConfig& loaded) {
  Basis basis;
  basis.other_machine = other_machine.has_value();
  if (basis.other_machine) {
    basis.profile = std::move(other_machine);
    return basis;
  }
  resolve_backend(loaded);
  STRATA_TRY_ASSIGN(CachedProfile cached,
                    load_local_profile(posix_io(), args.environment, loaded.config.memory.backend,
                                       loaded.config.cpu.share.threads()));
  basis.profile = std::move(cached.profile);
  basis.note =
      basis.profile || !cached.warning.empty()
          ? cached.warning
          : std::string("no forecast: strata bench measures this machine; --machine selects another");
  return basis;
}

// Loads the configuration. The values of --params and --machine are defaults: keys that the user sets take
// precedence.
Result<LoadedConfig> load(ConfigRequest request, const std::string& params,
                          const std::optional<MachineProfile>& other_machine) {
  if (!params.empty()) {
    STRATA_TRY_ASSIGN(const double parameters, parse_parameter_count(params));
    STRATA_TRY_ASSIGN(const std::vector<std::string> model, llama_settings_for(parameters));
    apply_defaults(request, model);
  }
  ConfigLayer machine;
  if (other_machine && other_machine->memory[2] > 0)
    machine = {other_machine->name, {{"memory.nvme", str(other_machine->memory[2])}}};
  return load_config(request, std::move(machine));
}

// Forecasts the same run with other settings.
Result<std::optional<Forecast>> forecast_with(const Args& args, const Basis& basis,
                                              const std::vector<std::string>& settings) {
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load(with_overrides<ConfigRequest>(args, settings), args.params,
                                              basis.other_machine ? basis.profile : std::nullopt));
  auto planned = plan_job(loaded, basis.plan_basis(false));
  if (planned.has_value()) return std::optional(*planned->forecast);
  if (planned.status().code() == Code::does_not_fit) return std::optional<Forecast>();
  return planned.status();
}

ForecastForBudgets forecasts_of(const Args& args, const Basis& basis) {
  return [&args, &basis](const TierBytes& budgets) {
    std::vector<std::string> settings;
    for (std::size_t t = 0; t < kTiers; ++t)
      settings.push_back(str("memory.", to_string(static_cast<Tier>(t)), "=",
                             budgets[t] == kUnlimited ? std::string("unlimited") : str(budgets[t])));
    return forecast_with(args, basis, settings);
  };
}

// The settings that are worth a try: larger budgets, moments in 8 bits, and larger steps, which update as
// much for more tokens. The last two change what is learned, so that they are never chosen, only named.
std::vector<RunChange> changes_of(const TrainConfig& config, const RunPlan& run) {
  std::vector<RunChange> changes = budget_changes(run.options.budgets, run.options.capacity);
  if (config.offload.states == "fp32")
    changes.push_back({.setting = "offload.states=int8", .note = "moments in 8 bits"});
  if (config.parallel.pp == 1)
    changes.push_back({.setting = str("train.grad_accum=", 2 * config.train.grad_accum),
                       .note = str(static_cast<std::int64_t>(2 * tokens_per_step(config)), " tokens a step"),
                       .tokens = 2});
  return changes;
}

// The change that helps most. A setting that the run refuses is none. The programs and
// the size of chunks are those of the plan, since to compare all of them again takes minutes for large
// models.
Result<std::string> next_change(const Args& args, const Basis& basis, const ConfigTree& tree,
                                const TrainConfig& config, const PlannedJob& job) {
  constexpr double kNoGain = 1.02;
  if (kNoGain * job.forecast->lanes.compute >= job.forecast->step_s)
    return std::string(
        "no larger budget or step would make it 2 % faster, since the device computes all the time\n");
  std::vector<std::string> as_planned;
  for (const char* key : {"train.recompute", "offload.micro_batch_order"})
    if (tree.entry(key).automatic) as_planned.push_back(str(key, "=", tree.text(key)));
  if (tree.entry("offload.chunk").automatic)
    as_planned.push_back(str("offload.chunk=", job.plan->layout.chunk_elems()));
  return suggest_change(changes_of(config, *job.plan), *job.forecast,
                        [&](const std::string& setting) -> Result<std::optional<Forecast>> {
                          std::vector<std::string> settings = as_planned;
                          settings.push_back(setting);
                          auto with = forecast_with(args, basis, settings);
                          if (with.has_value() || with.status().code() != Code::invalid) return with;
                          return std::optional<Forecast>();
                        });
}

std::string budgets_text(const TierBytes& budgets) {
  const auto text = [](std::uint64_t bytes) {
    return bytes == kUnlimited ? std::string("unlimited") : str(bytes);
  };
  return str("memory.device=", text(budgets[0]), " memory.pinned=", text(budgets[1]));
}

// --sweep and --optimize compare forecasts of one rank.
Status require_forecast(const Args& args, const TrainConfig& config, const PlannedJob& job) {
  if (!args.sweep && !args.optimize) return {};
  if (config.parallel.pp > 1)
    return Status::error(Code::unsupported,
                         str("--sweep and --optimize compare forecasts of one rank, but "
                             "the stages of a pipeline wait for each other (parallel.pp = ",
                             config.parallel.pp, ")"));
  if (job.forecast) return {};
  return Status::error(Code::invalid,
                       job.chosen_by.empty()
                           ? std::string("--sweep and --optimize need a machine profile: strata bench "
                                         "measures this machine; --machine selects another")
                           : "--sweep and --optimize need a forecast; " + job.chosen_by);
}

Status print_sweep(const Args& args, const RunPlan& run, double tokens,
                   const ForecastForBudgets& forecast_for) {
  STRATA_TRY_ASSIGN(const BudgetSweep sweep,
                    sweep_budgets(run.options.budgets, run.options.capacity, forecast_for));
  print(args.out, args.json ? sweep_json(sweep, tokens) : sweep_text(sweep, tokens));
  return {};
}

/// The stages of a pipeline.
struct Stages {
  std::vector<PlannedJob> later;      ///< behind that of rank 0
  std::vector<const RunPlan*> plans;  ///< the plans of all stages
  std::vector<Forecast> forecasts;    ///< forecasts of all stages together; empty without a profile
};

// The last step of a trace, as a picture or as events for Perfetto.
Status write_timeline(const Args& args, Trace& trace, double step_s, const std::string& title) {
  Io& io = posix_io();
  if (args.timeline.ends_with(".json")) return trace.write(io, args.timeline).annotate("--timeline");
  return write_text_atomically(io, args.timeline, rank_timeline_svg(trace.spans(), step_s, title))
      .annotate("--timeline");
}

Status check_timeline(const Args& args, const TrainConfig& config) {
  if (args.timeline.empty()) return {};
  if (!args.timeline.ends_with(".svg") && !args.timeline.ends_with(".json"))
    return Status::error(Code::invalid,
                         str("--timeline ", args.timeline, ": the file must end in .svg or .json"));
  const OutputFile output{"--timeline", args.timeline, "a timeline of strata", {}, false, true};
  STRATA_TRY(check_output(output, [](std::string_view head) {
    return head.starts_with("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"begin_unix_ns\"") ||
           (head.starts_with("<svg ") &&
            head.find("font-family=\"sans-serif\" font-size=\"12\">") != std::string_view::npos);
  }));
  if (config.parallel.pp > 1 || args.ranks > 0) return {};
  return Status::error(Code::invalid, "--timeline shows ranks that wait for each other: parallel.pp is 1");
}

// Plans the other stages of a pipeline, and forecasts all of them in one virtual time.
Result<Stages> plan_stages(const Args& args, const LoadedConfig& loaded, PlannedJob& job,
                           const Basis& basis) {
  Stages stages;
  STRATA_TRY(check_timeline(args, loaded.config));
  if (loaded.config.parallel.pp == 1) return stages;
  STRATA_TRY_ASSIGN(stages.later, plan_later_stages(loaded, basis.plan_basis()));
  stages.plans.push_back(job.plan.get());
  for (const PlannedJob& later : stages.later) stages.plans.push_back(later.plan.get());
  if (!job.forecast && !args.timeline.empty())
    return Status::error(
        Code::invalid,
        "--timeline draws a forecast, which needs the rates of every tier: strata bench --nvme-dir "
        "measures this machine; --machine selects another");
  if (!job.forecast) return stages;
  const SteadyClock clock;  // the simulation has times of its own
  Trace trace(clock);
  STRATA_TRY_ASSIGN(stages.forecasts, forecast_ranks(stages.plans, *basis.profile,
                                                     {.trace = args.timeline.empty() ? nullptr : &trace}));
  job.forecast = stages.forecasts.front();
  for (const Forecast& stage : stages.forecasts)
    job.forecast->step_s = std::max(job.forecast->step_s, stage.step_s);
  if (!args.timeline.empty())
    STRATA_TRY(write_timeline(args, trace, job.forecast->step_s,
                              str("A step of ", stages.plans.size(), " stages of a pipeline, schedule ",
                                  loaded.config.parallel.schedule, ", on ", basis.profile->name)));
  return stages;
}

// The keys that were auto, with what the plan has; given as settings, they lead to the same plan on other
// machines.
std::string chosen_json(const ConfigTree& tree) {
  std::string text;
  for (const std::string& key : planned_keys())
    if (const ConfigEntry& entry = tree.entry(key); entry.automatic && entry.resolved)
      text += str(text.empty() ? "" : ", ", json_string(key), ": ", tree.shown(key));
  return str("{", text, "}");
}

void print_json(const Args& args, const LoadedConfig& loaded, const PlannedJob& job, const Stages& stages,
                const Basis& basis) {
  const TrainConfig& config = loaded.config;
  std::vector<JsonField> more = {{"chosen", chosen_json(loaded.tree)}};
  if (job.forecast)
    more.push_back({"forecast", forecast_json(*job.forecast, *basis.profile, tokens_per_step(config),
                                              job.clipped_step_s)});
  if (!stages.plans.empty()) more.push_back({"stages", stages_json(stages.plans, stages.forecasts)});
  print(args.out, plan_json(config, *job.plan, job.recompute, more));
}

Status print_text(const Args& args, const Args& as_planned, const LoadedConfig& loaded, const PlannedJob& job,
                  const Stages& stages, const Basis& basis) {
  const TrainConfig& config = loaded.config;
  const RunPlan& run = *job.plan;
  for (const std::string& note : start_notes(config)) print(args.out, note + "\n");
  print(args.out, start_table(config, job, "opened when the run starts"));
  if (!stages.plans.empty()) print(args.out, stages_text(stages.plans, stages.forecasts));
  if (job.forecast) {
    print(args.out,
          forecast_text(*job.forecast, *basis.profile, tokens_per_step(config), job.clipped_step_s) +
              unmodeled_text(run.of(ProgramRole::train), *basis.profile) +
              network_text(run.options, *basis.profile));
  }
  if (job.forecast && stages.plans.empty()) {
    STRATA_TRY_ASSIGN(const std::string change, next_change(as_planned, basis, loaded.tree, config, job));
    print(args.out, change);
  }
  if (args.optimize) {
    STRATA_TRY_ASSIGN(const TierBytes enough, smallest_sufficient_budgets(run.options.budgets, *job.forecast,
                                                                          forecasts_of(as_planned, basis)));
    print(args.out, str("at most 2 % slower with ", budgets_text(enough), "\n"));
  }
  if (!basis.note.empty()) print(args.out, basis.note + "\n");
  return {};
}

// --ranks: compares the layouts of so many ranks.
Status plan_layouts(const Args& args, LoadedConfig& loaded, const Basis& basis) {
  if (!basis.profile)
    return Status::error(
        Code::invalid,
        "--ranks compares layouts by forecasts, which need a machine profile: strata bench "
        "measures this machine; --machine selects another; parallel.ranks=N plans one layout "
        "without");
  STRATA_TRY(check_timeline(args, loaded.config));
  if (args.sweep || args.optimize)
    return Status::error(Code::invalid, "--sweep and --optimize plan one layout; --ranks compares several");
  const std::optional<MachineProfile> other = basis.other_machine ? basis.profile : std::nullopt;
  const auto load_with = [&](const std::vector<std::string>& assignments) {
    return load(with_overrides<ConfigRequest>(args, assignments), args.params, other);
  };
  STRATA_TRY_ASSIGN(const FoundLayouts found,
                    find_layouts(loaded, args.ranks, load_with, *basis.profile, basis.other_machine));
  const double tokens = tokens_per_step(loaded.config);
  print(args.out, args.json ? layouts_json(found, *basis.profile, tokens)
                            : layouts_text(found, *basis.profile, tokens));
  if (args.timeline.empty()) return {};
  const SteadyClock clock;  // the simulation has times of its own
  Trace trace(clock);
  const DryRunLayout traced =
      dry_run_layout(found.best().estimate, load_with, *basis.profile, basis.other_machine, &trace);
  return write_timeline(args, trace, traced.traced_s,
                        str("A step of ", to_string(traced.estimate.layout), " on ", basis.profile->name));
}

Status plan(const Args& args) {
  STRATA_TRY_ASSIGN(std::optional<MachineProfile> other_machine, named_machine(args));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load(args, args.params, other_machine));
  STRATA_TRY_ASSIGN(const Basis basis, basis_of(args, std::move(other_machine), loaded));
  if (args.ranks > 0) return plan_layouts(args, loaded, basis);
  const std::optional<MachineProfile> machine = basis.other_machine ? basis.profile : std::nullopt;
  STRATA_TRY_ASSIGN(PlannedJob job, plan_with_batch_split(args, loaded, basis.plan_basis(),
                                                          [&](const ConfigRequest& request) {
                                                            return load(request, args.params, machine);
                                                          }));
  const TrainConfig& config = loaded.config;
  STRATA_TRY_ASSIGN(const Stages stages, plan_stages(args, loaded, job, basis));
  STRATA_TRY(check_write_budget(config.io.write_budget_bytes, *job.plan));
  STRATA_TRY(require_forecast(args, config, job));
  // Forecasts use the micro-batches of the plan, which may have been split.
  const Args as_planned = job.split.empty()
                              ? args
                              : with_overrides(args, {str("train.micro_batch=", config.train.micro_batch),
                                                      str("train.grad_accum=", config.train.grad_accum)});
  if (args.sweep)
    return print_sweep(args, *job.plan, tokens_per_step(config), forecasts_of(as_planned, basis));
  if (!args.json) return print_text(args, as_planned, loaded, job, stages, basis);
  print_json(args, loaded, job, stages, basis);
  return {};
}

}  // namespace

int run_plan(const Args& args) {
  const Status status = plan(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "plan", status);
}

}  // namespace strata::cli

#include <strata/plan/split/dry_run_stages.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include <strata/config/load_config.h>
#include <strata/engine/forecast_ranks.h>
#include <strata/runtime/str.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/plan/split/plan_stages.h>

namespace strata {
namespace {

/// The stages of a copy with a step of some micro-batches, in one virtual time.
struct DryRun {
  std::vector<PlannedJob> stages;
  std::vector<Forecast> forecasts;
  double step_s() const {
    double step = 0;
    for (const Forecast& stage : forecasts) step = std::max(step, stage.step_s);
    return step;
  }
};

// The plans of all stages.
Result<std::vector<PlannedJob>> plan_all(LoadedConfig loaded, int micro_batches, const PlanBasis& basis) {
  loaded.config.train.grad_accum = micro_batches * data_parallel(loaded.config).ranks;
  std::vector<PlannedJob> stages;
  STRATA_TRY_ASSIGN(PlannedJob first, plan_job(loaded, basis));
  stages.push_back(std::move(first));
  STRATA_TRY_ASSIGN(std::vector<PlannedJob> later, plan_later_stages(loaded, basis));
  for (PlannedJob& stage : later) stages.push_back(std::move(stage));
  return stages;
}

Result<DryRun> dry_run(const LoadedConfig& loaded, int micro_batches, const MachineProfile& machine,
                       bool other_machine, Trace* trace) {
  DryRun run;
  const PlanBasis basis{
      .profile = &machine, .other_machine = other_machine, .explain_refusal = false, .by_forecast = false};
  STRATA_TRY_ASSIGN(run.stages, plan_all(loaded, micro_batches, basis));
  std::vector<const RunPlan*> plans;
  for (const PlannedJob& stage : run.stages) plans.push_back(stage.plan.get());
  STRATA_TRY_ASSIGN(run.forecasts, forecast_ranks(plans, machine, {.trace = trace}));
  return run;
}

// Elements of the parameters of all plans, over all ranks of their stages; one that several stages have
// counts once.
std::int64_t param_elems(const std::vector<PlannedJob>& stages) {
  std::int64_t elems = 0;
  std::set<std::string> known;
  for (const PlannedJob& stage : stages) {
    const auto& tensors = stage.plan->tensors;
    for (std::size_t t = 0; t < tensors.specs.size(); ++t)
      if (!tensors.specs[t].is_elsewhere && known.insert(std::string(tensors.specs[t].name)).second)
        elems += tensors.whole_shape(t).n_elems();
  }
  return elems;
}

/// Micro-batches of the steps that are run: all of them, or two numbers of them.
struct Steps {
  int all, shorter, longer;
};
// A schedule that keeps the activations of all micro-batches needs the memory of all.
Steps steps_of(const TrainConfig& config) {
  const int all = config.train.grad_accum / data_parallel(config).ranks, pp = config.parallel.pp,
            round = pp > 1 ? pp : 2;
  const std::string& schedule = config.parallel.schedule;
  const bool keeps_all = pp > 1 && (schedule == "gpipe" || schedule == "breadth-first");
  if (all <= 3 * round || keeps_all) return {all, all, all};
  return {all, round, 2 * round};
}

}  // namespace

double StagesDryRun::idle_share() const {
  const double computes = std::accumulate(computes_s.begin(), computes_s.end(), 0.0);
  return computes_s.empty() ? 0 : 1 - computes / (step_s * static_cast<double>(computes_s.size()));
}

Result<StagesDryRun> dry_run_stages(const LoadedConfig& loaded, const MachineProfile& machine,
                                    bool other_machine, Trace* trace) {
  const Steps steps = steps_of(loaded.config);
  STRATA_TRY_ASSIGN(const DryRun longer, dry_run(loaded, steps.longer, machine, other_machine, trace));
  StagesDryRun found{.step_s = longer.step_s(), .traced_s = longer.step_s()};
  if (steps.all > steps.longer) {
    STRATA_TRY_ASSIGN(const DryRun shorter, dry_run(loaded, steps.shorter, machine, other_machine, nullptr));
    // Where the two are placed differently, their difference says nothing.
    const double each = (longer.step_s() - shorter.step_s()) / (steps.longer - steps.shorter),
                 on_average = longer.step_s() / steps.longer;
    found.step_s += (each > 0.2 * on_average ? each : on_average) * (steps.all - steps.longer);
  }
  for (std::size_t i = 0; i < longer.stages.size(); ++i) {
    const Forecast& stage = longer.forecasts[i];
    const double more = static_cast<double>(steps.all) / steps.longer;
    found.peak.push_back(longer.stages[i].plan->planned_peak);
    found.computes_s.push_back(static_cast<double>(stage.times.computing_ns) * 1e-9 * more);
    found.waits_s.push_back(static_cast<double>(stage.times.of(StallCause::collective)) * 1e-9);
  }
  found.param_elems = param_elems(longer.stages);
  return found;
}

Status explain_refusal(const LoadedConfig& loaded, const MachineProfile& machine, bool other_machine) {
  const PlanBasis basis{.profile = &machine, .other_machine = other_machine, .by_forecast = false};
  return plan_all(loaded, steps_of(loaded.config).longer, basis).status();
}

Status check_stages_fit(const LoadedConfig& loaded) {
  return plan_all(loaded, steps_of(loaded.config).longer, {.explain_refusal = false, .by_forecast = false})
      .status();
}

}  // namespace strata

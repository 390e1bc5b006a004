#include <strata/train/split/mesh_search.h>

#include <algorithm>
#include <numeric>

#include <strata/engine/forecast_ranks.h>
#include <strata/runtime/str.h>
#include <strata/train/split/plan_stages.h>

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

Result<DryRun> dry_run(const MeshLayout& layout, int micro_batches, const LoadWith& load,
                       const MachineProfile& machine, bool other_machine, Trace* trace) {
  std::vector<std::string> all = assignments(layout);
  all.push_back(str("train.grad_accum=", micro_batches * layout.dp));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load(all));
  DryRun run;
  const PlanBasis basis{
      .profile = &machine, .other_machine = other_machine, .explain_refusal = false, .by_forecast = false};
  STRATA_TRY_ASSIGN(PlannedJob first, plan_job(loaded, basis));
  run.stages.push_back(std::move(first));
  STRATA_TRY_ASSIGN(std::vector<PlannedJob> later, plan_later_stages(loaded, basis));
  for (PlannedJob& stage : later) run.stages.push_back(std::move(stage));
  std::vector<const RunPlan*> plans;
  for (const PlannedJob& stage : run.stages) plans.push_back(stage.plan.get());
  STRATA_TRY_ASSIGN(run.forecasts, forecast_ranks(plans, machine, {.trace = trace}));
  return run;
}

// Elements of the parameters of a plan, over all ranks of its stage.
std::int64_t param_elems(const RunPlan& plan) {
  std::int64_t elems = 0;
  for (std::size_t t = 0; t < plan.tensors.specs.size(); ++t)
    if (!plan.tensors.specs[t].is_elsewhere) elems += plan.tensors.whole_shape(t).n_elems();
  return elems;
}

/// Micro-batches of the steps that are run: all of them, or two numbers of them.
struct Steps {
  int all, shorter, longer;
};
Steps steps_of(const MeshLayout& layout, int micro_batches) {
  const int round = layout.pp > 1 ? layout.pp : 2;
  if (micro_batches <= 3 * round) return {micro_batches, micro_batches, micro_batches};
  return {micro_batches, round, 2 * round};
}

Result<DryRunLayout> run_steps(const LayoutEstimate& estimate, const LoadWith& load,
                               const MachineProfile& machine, bool other_machine, Trace* trace) {
  const MeshLayout& layout = estimate.layout;
  STRATA_TRY_ASSIGN(const LoadedConfig whole, load(assignments(layout)));
  const Steps steps = steps_of(layout, whole.config.train.grad_accum / layout.dp);
  STRATA_TRY_ASSIGN(const DryRun longer, dry_run(layout, steps.longer, load, machine, other_machine, trace));
  DryRunLayout found{.estimate = estimate, .step_s = longer.step_s(), .traced_s = longer.step_s()};
  double left_out_s = 0;
  if (steps.all > steps.longer) {
    STRATA_TRY_ASSIGN(const DryRun shorter,
                      dry_run(layout, steps.shorter, load, machine, other_machine, nullptr));
    left_out_s =
        (longer.step_s() - shorter.step_s()) / (steps.longer - steps.shorter) * (steps.all - steps.longer);
  }
  found.step_s += left_out_s;
  for (std::size_t i = 0; i < longer.stages.size(); ++i) {
    const Forecast& stage = longer.forecasts[i];
    const double more = static_cast<double>(steps.all) / steps.longer;
    found.peak.push_back(longer.stages[i].plan->planned_peak);
    found.computes_s.push_back(static_cast<double>(stage.times.computing_ns) * 1e-9 * more);
    found.waits_s.push_back(static_cast<double>(stage.times.of(StallCause::collective)) * 1e-9);
    found.param_elems += param_elems(*longer.stages[i].plan);
  }
  return found;
}

}  // namespace

double DryRunLayout::idle_share() const {
  const double computes = std::accumulate(computes_s.begin(), computes_s.end(), 0.0);
  return computes_s.empty() ? 0 : 1 - computes / (step_s * static_cast<double>(computes_s.size()));
}

DryRunLayout dry_run_layout(const LayoutEstimate& estimate, const LoadWith& load,
                            const MachineProfile& machine, bool other_machine, Trace* trace) {
  auto found = run_steps(estimate, load, machine, other_machine, trace);
  return found.has_value() ? *std::move(found)
                           : DryRunLayout{.estimate = estimate, .refused = found.status()};
}

std::vector<DryRunLayout> dry_run_layouts(const std::vector<LayoutEstimate>& estimates, std::size_t n,
                                          const LoadWith& load, const MachineProfile& machine,
                                          bool other_machine) {
  std::vector<DryRunLayout> found;
  for (std::size_t i = 0; i < std::min(n, estimates.size()); ++i)
    found.push_back(dry_run_layout(estimates[i], load, machine, other_machine));
  std::stable_sort(found.begin(), found.end(), [](const DryRunLayout& a, const DryRunLayout& b) {
    return a.refused.is_ok() != b.refused.is_ok() ? a.refused.is_ok() : a.step_s < b.step_s;
  });
  return found;
}

MeshRequest mesh_request(const LoadedConfig& loaded, int ranks) {
  const TrainConfig::Parallel& parallel = loaded.config.parallel;
  const auto is_set = [&](const char* key) { return loaded.tree.entry(key).origin != "default"; };
  MeshRequest request{.ranks = ranks};
  if (is_set("parallel.pp")) request.pp = parallel.pp;
  if (is_set("parallel.tp")) request.tp = parallel.tp;
  if (is_set("parallel.cp")) request.cp = parallel.cp;
  if (is_set("parallel.zero")) request.zero = parallel.zero;
  if (is_set("parallel.schedule")) request.schedule = parallel.schedule;
  if (is_set("parallel.virtual_stages") && parallel.virtual_stages > 0)
    request.virtual_stages = parallel.virtual_stages;
  return request;
}

}  // namespace strata

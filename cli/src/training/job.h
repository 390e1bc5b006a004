#pragma once

#include <memory>
#include <optional>
#include <string>

#include <strata/engine/forecast.h>
#include <strata/graph/passes.h>
#include <strata/runtime/host_backend.h>

#include "load_config.h"

namespace strata::cli {

/// A plan with every `auto` of the configuration decided and written back with its reason.
struct PlannedJob {
  std::unique_ptr<const RunPlan> plan;
  Recompute recompute = Recompute::none;
  std::optional<Forecast> forecast{};  ///< where there is a profile
  std::string chosen_by;               ///< one sentence: of how many ways, by what; empty where by none
};
/// By which the ways to run a step are judged: without one the first that fits is taken.
struct PlanBasis {
  const MachineProfile* profile = nullptr;
  bool elsewhere = false;  ///< it is of another machine than this: what is auto about memory follows it
  bool explains = true;    ///< a refusal has its table, which takes a while
};
/// Records the model, decides the remaining autos and proves that the run fits. Errors: `does_not_fit`,
/// `unsupported` (memory.backend=cuda), `invalid`.
Result<PlannedJob> plan_job(LoadedConfig& loaded, const PlanBasis& basis = {});

/// The plan of a run of these programs alone, within the configuration's budgets. Errors: as plan_job.
Result<std::unique_ptr<const RunPlan>> plan_programs(LoadedConfig& loaded, const ProgramSet& programs);

/// The same for a run that only evaluates: it holds parameters and one pass, no moments and no gradients.
Result<std::unique_ptr<const RunPlan>> plan_evaluation(LoadedConfig& loaded);

/// A planned job on its backend, ready for its first step or evaluation.
class Job {
 public:
  /// `trace` may be null; it outlives the job.
  static Result<std::unique_ptr<Job>> start(const TrainConfig& config, const RunPlan& plan, Io& io,
                                            Trace* trace = nullptr);
  Engine& engine() noexcept { return *engine_; }

 private:
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Engine> engine_;
};

/// ", 75 % in /mnt/a, 25 % in /mnt/b" of what the NVMe tier holds, where that is several folders.
std::string paths_text(const std::vector<NvmePath>& paths);
/// The table shown before a run: model, machine, budgets and plan by tier.
std::string start_table(const TrainConfig& config, const PlannedJob& job, const std::string& nvme_note);
/// plan.json.
/// plan.json; `forecast` is a JSON object, or nothing.
std::string plan_json(const TrainConfig& config, const RunPlan& plan, Recompute recompute,
                      const std::string& forecast = {});
/// Of one optimizer step.
double tokens_per_step(const TrainConfig& config) noexcept;

}  // namespace strata::cli

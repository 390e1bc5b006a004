#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <strata/engine/forecast.h>
#include <strata/graph/passes.h>
#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>

#include "load_config.h"

namespace strata::cli {

/// A plan with every `auto` of the configuration decided and written back with its reason.
struct PlannedJob {
  std::unique_ptr<const RunPlan> plan;
  Recompute recompute = Recompute::none;
  std::optional<Forecast> forecast{};      ///< where there is a profile
  std::optional<double> clipped_step_s{};  ///< where speculative updates would be undone: each step clipped
  std::string chosen_by;                   ///< one sentence: of how many ways, by what; or why by none
  std::string other_machine;               ///< the machine it is for, where that is not this one
  std::string bf16_gemm;                   ///< how and why bf16 is multiplied so on cores; empty elsewhere
  std::string split;  ///< of micro-batches that were halved so that it fits: what they were
};
/// By which the ways to run a step are judged: without one the first that fits is taken.
struct PlanBasis {
  const MachineProfile* profile = nullptr;
  bool other_machine = false;   ///< it is of another machine than this: what is auto about memory follows it
  bool explain_refusal = true;  ///< a refusal has its table, which takes a while
};
/// Records the model, decides the remaining autos and proves that the run fits. Errors: `does_not_fit`,
/// `unsupported` (memory.backend=cuda without a GPU for it), `invalid`.
Result<PlannedJob> plan_job(LoadedConfig& loaded, const PlanBasis& basis = {});

/// The same; where the run does not fit and train.allow_micro_batch_split is set, with micro-batches of half
/// the size and twice as many, again and again. `load` makes `loaded` of a command line.
Result<PlannedJob> plan_with_batch_split(const Args& args, LoadedConfig& loaded, PlanBasis basis,
                                         const std::function<Result<LoadedConfig>(const Args&)>& load);

/// The plan of a run of these programs alone, within the configuration's budgets. Errors: as plan_job.
Result<std::unique_ptr<const RunPlan>> plan_programs(LoadedConfig& loaded, const ProgramSet& programs);

/// The same for a run that only evaluates: it holds parameters and one pass, no moments and no gradients.
Result<std::unique_ptr<const RunPlan>> plan_evaluation(LoadedConfig& loaded);

/// Decides memory.backend where it is auto; `other_machine`: a plan is made for that machine. Before a
/// profile of this machine is looked up, for each of its devices has its own.
void resolve_backend(LoadedConfig& loaded, const MachineProfile* other_machine = nullptr);

/// On the host backend both tiers of memory are RAM.
std::uint64_t bytes_in_ram(const TrainConfig& config, const RunPlan& plan) noexcept;

/// A planned job on its backend, ready for its first step or evaluation.
class Job {
 public:
  /// `trace` may be null; it outlives the job.
  static Result<std::unique_ptr<Job>> start(const TrainConfig& config, const RunPlan& plan, Io& io,
                                            Trace* trace = nullptr);
  /// Whether RAM, the GPU and, where there is an engine, the disks have room for the plan now, once what the
  /// engine holds is given back. Errors: `does_not_fit` with both numbers and the nearest budgets,
  /// `no_space`.
  Status check_room(const TrainConfig& config, const RunPlan& plan, Io& io) const;
  Engine& engine() noexcept { return *engine_; }
  /// Gives back the memory of the engine there is, and takes that of `plan`. What was trained is lost unless
  /// it was saved. Errors: those of start(); then there is no engine.
  Status restart(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace);

 private:
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace strata::cli

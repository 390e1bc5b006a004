#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <strata/engine/engine.h>
#include <strata/engine/forecast.h>
#include <strata/graph/passes.h>
#include <strata/parallel/world.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/units.h>

namespace strata {

struct ConfigRequest;
struct LoadedConfig;
struct TrainConfig;

/// Contract C3: memory that a process may use beyond what is planned and what others of it measure.
inline constexpr std::uint64_t kProcessSlack = 64 * kMiB;

/// The memory of the process of one rank, or of several ranks that are its threads.
struct RankMemory {
  int rank = 0;                     ///< the first of the process
  std::uint64_t planned_bytes = 0;  ///< in RAM, of all its ranks
  std::uint64_t data_bytes = 0;     ///< the dataset's bytes, which each of them maps
  std::uint64_t transport_bytes = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t limit_bytes() const noexcept {
    return planned_bytes + data_bytes + transport_bytes + kProcessSlack;
  }
};

/// A plan for which every `auto` of the configuration was decided and written back with its reason.
struct PlannedJob {
  std::unique_ptr<const RunPlan> plan;
  Recompute recompute = Recompute::none;
  std::optional<Forecast> forecast{};      ///< set if there is a profile
  std::optional<double> clipped_step_s{};  ///< step time if each step is clipped and rolled back
  std::string chosen_by;                   ///< one sentence: among how many candidates and how it was chosen
  std::string other_machine;               ///< the machine that the plan is for; empty: this one
  std::string bf16_gemm;                   ///< which bf16 GEMM the CPU uses and why; empty if none
  std::string split;  ///< the requested micro-batch settings, if they were halved so that the run fits
};
/// How candidate plans are compared: by the forecast for `profile`, or without one the first that fits is
/// chosen.
struct PlanBasis {
  const MachineProfile* profile = nullptr;
  bool other_machine = false;   ///< `profile` is of another machine: `auto` budgets are what that machine has
  bool explain_refusal = true;  ///< a `does_not_fit` error contains a table, which takes a while to compute
  bool by_forecast = true;      ///< false: the first plan that fits, though there is a profile
};
/// Records the model, decides the remaining `auto` keys and proves that the run fits. Errors: `does_not_fit`,
/// `unsupported` (memory.backend=cuda without a GPU for it), `invalid`.
Result<PlannedJob> plan_job(LoadedConfig& loaded, const PlanBasis& basis = {});

/// Like plan_job(). If the run does not fit and train.allow_micro_batch_split is set, it halves the size of
/// micro-batches and doubles their number until the run fits. `load` loads the configuration of a request and
/// decides what depends on data.
Result<PlannedJob> plan_with_batch_split(
    const ConfigRequest& request, LoadedConfig& loaded, PlanBasis basis,
    const std::function<Result<LoadedConfig>(const ConfigRequest&)>& load);

/// The plan of a run that has only these programs, within the budgets of the configuration. `shared`: they
/// are those of this rank, which shares the model with others. Errors: as plan_job().
Result<std::unique_ptr<const RunPlan>> plan_programs(LoadedConfig& loaded, const ProgramSet& programs,
                                                     bool shared = false);

/// The plan of a run that only evaluates: it has parameters and a forward pass, no moments and no gradients.
/// `shared`: ranks share the model as section `parallel` says.
Result<std::unique_ptr<const RunPlan>> plan_evaluation(LoadedConfig& loaded, bool shared = false);

/// Decides memory.backend if it is `auto`. `other_machine`: the profile of the machine that is planned for;
/// null: this one. Call it before looking up a profile of this machine, since each of its devices has its
/// own.
void resolve_backend(LoadedConfig& loaded, const MachineProfile* other_machine = nullptr);

/// The planned peak in RAM: that of the pinned tier and, on the host backend, of the device tier too.
std::uint64_t bytes_in_ram(const TrainConfig& config, const RunPlan& plan) noexcept;

/// A planned job on its backend, ready for its first step or evaluation.
class Job {
 public:
  /// `trace` may be null; it must outlive the job. With several ranks, all of them start their jobs in
  /// `world`; errors are the same on all.
  static Result<std::unique_ptr<Job>> start(const TrainConfig& config, const RunPlan& plan, Io& io,
                                            Trace* trace = nullptr, World* world = nullptr);
  /// Checks that RAM, the GPU and, if there is an engine, the disks have room for `plan` once the present
  /// engine is destroyed. Errors: `does_not_fit` with both numbers and the nearest budgets that fit,
  /// `no_space`.
  Status check_room(const TrainConfig& config, const RunPlan& plan, Io& io) const;
  Engine& engine() noexcept { return *engine_; }
  /// Destroys the present engine and creates one for `plan`. Training states that were not saved are lost.
  /// Errors: those of start(); afterwards there is no engine.
  Status restart(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace);

 private:
  Status create_engine(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace);
  /// Ranks that are threads of one process share it.
  struct Device {
    SteadyClock clock;
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<Backend> backend;
  };
  static Result<std::shared_ptr<void>> create_device(const TrainConfig& config, Trace* trace);

  World* world_ = nullptr;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace strata

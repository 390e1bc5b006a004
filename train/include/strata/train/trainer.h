#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <strata/parallel/world.h>
#include <strata/runtime/signals.h>
#include <strata/session/manifest.h>
#include <strata/train/budget_request.h>
#include <strata/infer/evaluation.h>
#include <strata/plan/job.h>
#include <strata/train/observer.h>
#include <strata/train/run_folder.h>
#include <strata/train/run_identity.h>
#include <strata/train/run_task.h>
#include <strata/train/stop_reason.h>
#include <strata/train/subspaces/schedule.h>
#include <strata/batches/training_data.h>
#include <strata/plan/write_budget.h>
#include <strata/infer/pair_figures.h>

namespace strata {

struct TrainConfig;

namespace detail {
class GradientNorms;
}

struct TrainOutcome {
  StopReason stop_reason = StopReason::finished;
  std::string why_stopped;  ///< if training stopped before its end: "by a signal"
  float train_loss = 0;
  std::optional<double> val_loss;  ///< nats per token, over all of data.val; nothing if not measured
  std::optional<double> bits_per_byte;
  PairFigures val_pairs;  ///< beside val_loss, of a run that compares pairs
  std::optional<Validation> last_validation, best_validation;  ///< the validations between steps
  double tokens_per_s = 0;                                     ///< measured over the steps only
  double train_seconds = 0;
  std::string state_digest;
  /// Made by strata's code in steps 3 to 12 of each plan of this process.
  std::uint64_t heap_allocations = 0;
  std::uint64_t resources_created = 0;  ///< buffers, streams, events and files created in the same steps
  StallTimes times{};                   ///< the stalls of the steps
  std::int64_t skipped_steps = 0;       ///< because a gradient was not finite
  /// The following cover the steps of the last plan, without its first three, in which pools and caches still
  /// fill.
  std::int64_t warm_steps = 0;
  std::int64_t warm_clipped = 0;
  double warm_seconds = 0;
  LaneBusySeconds warm_lanes{};
  /// The following cover this process, in all of its plans.
  MovedBytes moved{};
  LaneBusySeconds lanes{};
  std::uint64_t nvme_bytes_written = 0;
  std::uint64_t planned_in_ram = 0;  ///< maximum of all plans
  std::vector<RankMemory> memory{};  ///< one for each process
};

/// The objects that a trainer works with; all of them outlive the trainer.
struct TrainerParts {
  const TrainConfig& config;
  const TrainingData& data;
  RunTask& task;
  RunFolder& folder;
  Observer& observer;
  Signals& signals;
  Io& io;
  Trace* trace = nullptr;  ///< null: none is recorded
  World* world = nullptr;  ///< null if there is one rank
};

/// The training loop: steps, progress, metrics, validation, samples, checkpoints. A signal ends it after the
/// current step and cuts validations and samples short. If an error ends it, training states that are
/// consistent and not saved yet are saved first, and the error says where. With several ranks, every rank has
/// a trainer, and all take the same decisions after the same step; budgets cannot be changed. Not
/// thread-safe.
class Trainer {
 public:
  Trainer(const TrainerParts& parts, Job& job);
  ~Trainer();
  /// Trains until the end, or until there is a BudgetRequest in the run folder; call it again in that case.
  Result<TrainOutcome> run();
  /// Checks that training may continue with another plan. Errors: `does_not_fit` if io.write_budget does not
  /// allow it.
  Status check_budget_change(const RunPlan& plan) const;
  /// Saves unsaved states and returns the checkpoint. Call it before the job is restarted with another plan.
  Result<std::string> save_for_restart();
  /// Call it after the job was restarted with another plan and loaded the saved states.
  void continue_in(Job& job);
  /// Takes up what the checkpoint says besides its states, from which training continues. Call it before
  /// run().
  void resume_from(const Manifest& manifest);
  /// Stops looking for requests: one whose file cannot be removed would be found before every step.
  void ignore_requests() noexcept { polls_requests_ = false; }

 private:
  /// A decision that a rank would make before a step; every rank acts on what any of them said with the last
  /// step.
  enum Decision : std::uint32_t { kStop = 1, kTimeIsUp = 2, kSaveIsDue = 4, kWritesAreUsedUp = 8 };
  std::uint32_t decisions() const;
  bool decides(Decision decision) const { return (agreed_ & decision) != 0; }
  bool stop_requested() const;
  bool time_is_up() const;
  void record_warm_step(const StepReport& report, const LaneBusySeconds& before);
  Status record_skipped_step(std::int64_t step, const StepReport& report);
  Status train(TrainOutcome& outcome);
  Status step(std::int64_t step);
  Status renew_subspaces(MetricsLine& line);
  Status prepare_step();
  Status after_step(std::int64_t step);
  bool is_save_due(std::int64_t step) const;
  Status save_periodic_checkpoint();
  Status save_after_error(const Status& why);
  void update_signal_answer();
  Status validate_final(TrainOutcome& outcome);
  EvaluationObserver evaluation_observer(std::string what);
  void record_writes();
  Status validate(std::int64_t step);
  Status sample(std::int64_t step);
  Status save();
  Status save_in(const std::string& run);
  Result<std::string> ensure_saved();
  Status finish(TrainOutcome& outcome);
  void count_resources(bool begins);
  void add_totals();

  const TrainConfig& config_;
  Engine* engine_;
  const TrainingData& training_data_;
  RunTask& task_;
  RunFolder& folder_;
  Observer& observer_;
  Signals& signals_;
  Io& io_;
  Trace* const trace_;
  World* const world_;        // null if there is one rank
  std::uint32_t agreed_ = 0;  // decisions of all ranks
  const BudgetRequest request_;
  bool polls_requests_ = true;
  const std::unique_ptr<MicroBatches> val_batches_;  // null if there are none
  SubspaceSchedule subspaces_;
  const std::map<std::string, std::string> identity_;  // computed once because it digests all data
  WriteBudget write_budget_;
  SteadyClock clock_;
  std::int64_t skipped_in_a_row_ = 0;                      // steps without an update
  std::unique_ptr<detail::GradientNorms> gradient_norms_;  // null without log.histograms
  MetricsLine line_;                                       // the metrics of the last step
  TrainOutcome outcome_;
  MovedBytes moved_before_;
  std::int64_t begin_ns_ = 0, saved_step_ = -1, first_step_ = 0;
  std::int64_t saved_ns_ = 0;  // start of the last save, successful or not
  double last_step_s_ = 0;
  std::int64_t steps_in_plan_ = 0;
  double step_seconds_ = 0, tokens_ = 0;
  std::optional<EvaluationLoss>
      final_loss_;  // covers all validation data, if the last step's validation had them
  std::string checkpoint_path_;
  std::uint64_t nvme_bytes_before_ = 0;  // written by earlier plans
  std::uint64_t allocations_before_ = 0, resources_before_ = 0;
};

}  // namespace strata

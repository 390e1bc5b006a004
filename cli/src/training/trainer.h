#pragma once

#include <map>
#include <optional>
#include <string>

#include <strata/runtime/signals.h>

#include "load_config.h"
#include "progress.h"
#include "training/budget_request.h"
#include "training/evaluation.h"
#include "training/job.h"
#include "training/run_folder.h"
#include "training/run_identity.h"
#include "training/training_data.h"
#include "training/write_budget.h"

namespace strata::cli {

/// How training ended.
enum class StopReason : std::uint8_t {
  finished,       ///< all steps
  time_limit,     ///< the time limit; may be resumed
  write_budget,   ///< io.write_budget; saved, may be resumed
  signal,         ///< a signal; saved, may be resumed
  budget_change,  ///< none: it was asked for other budgets, see Trainer::continue_in()
};

struct TrainOutcome {
  StopReason stop_reason = StopReason::finished;
  std::string why_stopped;  ///< of what was stopped short of its end: "by a signal"
  float train_loss = 0;
  std::optional<double> val_loss;  ///< nats a token, over all of data.val; none where it was not measured
  std::optional<double> bits_per_byte;
  std::optional<Validation> last_validation, best_validation;  ///< of those between steps
  double tokens_per_s = 0;                                     ///< of the steps alone
  double train_seconds = 0;
  std::string state_digest;
  std::uint64_t heap_allocations = 0;   ///< by our code in steps 3-12 of this process in each of its plans
  std::uint64_t resources_created = 0;  ///< buffers, streams, events and files, in the same steps
  StallTimes times{};                   ///< of the steps
  std::int64_t skipped_steps = 0;       ///< for a gradient that was not finite
  /// Of the steps in the last plan but its first three, in which pools and caches still fill.
  std::int64_t warm_steps = 0;
  std::int64_t warm_clipped = 0;
  double warm_seconds = 0;
  LaneBusySeconds warm_lanes{};
  /// Of this process, in all plans it had.
  MovedBytes moved{};
  LaneBusySeconds lanes{};
  std::uint64_t nvme_bytes_written = 0;
  std::uint64_t planned_in_ram = 0;  ///< the most of all plans
};

/// The training loop: steps, progress, metrics, validation, samples, checkpoints. A signal ends it after the
/// step, and cuts validations and samples short. Whatever else ends it, states that are whole and not saved
/// are saved first, and the error says where. One thread.
class Trainer {
 public:
  Trainer(const TrainConfig& config, Job& job, const TrainingData& training_data, RunFolder& folder,
          Progress& progress, Signals& signals, Io& io, Trace* trace);
  /// Until the end, or until a BudgetRequest lies in the run's folder: then call it again.
  Result<TrainOutcome> run();
  /// Whether it may go on in another plan. Errors: `does_not_fit` where io.write_budget has no room for that.
  Status check_budget_change(const RunPlan& plan) const;
  /// Saves what is not saved and says where it is: before the job starts anew in another plan.
  Result<std::string> save_for_restart();
  /// After it has, with what was saved.
  void continue_in(Job& job);
  /// A request that cannot be taken away would be seen before every step.
  void ignore_requests() noexcept { polls_requests_ = false; }

 private:
  void record_warm_step(const StepReport& report, const LaneBusySeconds& before);
  Status record_skipped_step(std::int64_t step, const StepReport& report);
  Status train(TrainOutcome& outcome);
  Status step(std::int64_t step);
  Status after_step(std::int64_t step);
  bool is_save_due(std::int64_t step) const;
  Status save_periodic_checkpoint();
  Status save_after_error(const Status& why);
  void update_signal_answer();
  Status validate_final(TrainOutcome& outcome);
  EvaluationObserver observer(std::string what);
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
  RunFolder& folder_;
  Progress& progress_;
  Signals& signals_;
  Io& io_;
  Trace* const trace_;
  const BudgetRequest request_;
  bool polls_requests_ = true;
  DatasetBatches batches_;
  const std::map<std::string, std::string> identity_;  // once: it digests all data
  WriteBudget write_budget_;
  SteadyClock clock_;
  std::int64_t skipped_in_a_row_ = 0;
  TrainOutcome outcome_;
  MovedBytes moved_before_;
  std::int64_t begin_ns_ = 0, saved_step_ = -1, first_step_ = 0;
  std::int64_t saved_ns_ = 0;  // when the last save began, or was tried
  double last_step_s_ = 0;
  std::int64_t steps_in_plan_ = 0;  // in this plan
  std::int64_t steps_taken_ = 0;
  double step_seconds_ = 0;
  std::string checkpoint_path_;
  std::uint64_t nvme_bytes_before_ = 0;  // of earlier plans
  std::uint64_t allocations_before_ = 0, resources_before_ = 0;
};

}  // namespace strata::cli

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/plan/job.h>
#include <strata/plan/write_budget.h>
#include <strata/session/manifest.h>
#include <strata/train/budget_request.h>
#include <strata/train/train_outcome.h>

#include "loop/hooks/samples.h"
#include "loop/hooks/saves.h"
#include "loop/hooks/subspace_renewal.h"
#include "loop/hooks/validations.h"
#include "loop/run_loop.h"
#include "loop/step_meter.h"

namespace strata {

/// The training loop: steps, progress, metrics, validation, samples, checkpoints. A signal ends it after the
/// current step and cuts validations and samples short. If an error ends it, training states that are
/// consistent and not saved yet are saved first, and the error says where. With several ranks, every rank has
/// a trainer, and all take the same decisions after the same step; budgets cannot be changed. Not
/// thread-safe.
class Trainer {
 public:
  Trainer(const TrainerParts& parts, Job& job);
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
  std::uint32_t decisions() const;
  bool time_is_up() const;
  bool writes_are_used_up() const;
  Status train();
  Status prepare_step();
  Status step(std::int64_t step);
  Status record_skipped_step(const StepReport& report);
  void report_step();
  Status after_step();
  void record_writes();
  void update_signal_answer();
  Status finish();
  Status measure_last_step();
  void stop(StopReason reason, std::string why);

  detail::RunLoop loop_;
  const BudgetRequest request_;
  bool polls_requests_ = true;
  WriteBudget write_budget_;
  detail::SubspaceRenewal subspaces_;
  detail::Validations validations_;
  detail::Samples samples_;
  detail::Saves saves_;
  std::unique_ptr<detail::StepHook> gradient_norms_;  // null without log.histograms
  const std::vector<detail::StepHook*> hooks_;        // in the order of their calls
  MetricsLine line_;                                  // the metrics of the last step
  TrainOutcome outcome_;
  detail::StepMeter meter_;
  std::int64_t first_step_ = 0;        // steps done before this process
  std::int64_t skipped_in_a_row_ = 0;  // steps without an update
};

}  // namespace strata

#pragma once

#include <memory>

#include <strata/align/policy_iterations.h>
#include <strata/train/run_task.h>

namespace strata {

/// A run that learns from answers that it samples: train.objective=ppo and grpo.
class PolicyTask final : public RunTask {
 public:
  /// Errors: those of PolicyIterations::create().
  static Result<std::unique_ptr<RunTask>> create(const TrainConfig& config, const TrainingData& data);

  Status begin(Engine&, Observer&) override { return {}; }
  Status resume(Io& io, const std::string& checkpoint, const std::string& run) override;
  TaskState state(std::int64_t steps) const override;
  std::map<std::string, std::string> manifest_state() const override { return iterations_->state(); }
  /// States of two steps are those of none: the critic may lack a step of the policy.
  Status check_is_whole(const Engine& engine) const override;

  bool is_due(std::int64_t steps) const noexcept override { return iterations_->is_due(steps); }
  Status prepare(Engine& engine, std::int64_t steps, const std::function<bool()>& stops) override {
    return iterations_->begin(engine, steps, stops);
  }
  Result<std::string> prepared(std::int64_t steps) const override { return iterations_->lines(steps); }
  Status step(Engine& engine, double lr, StepReport& report) override {
    return iterations_->train(engine, lr, report);
  }
  /// Trains the critic: the step is the policy's and the critic's, and its time is that of both.
  Status after_step(Engine& engine, MetricsLine& line, Observer& observer) override;
  BatchSource* batches() noexcept override { return nullptr; }
  /// The positions that hold a token: micro-batches are packed with texts.
  double tokens_of_step() const noexcept override { return iterations_->mean_tokens_of_step(); }

  /// One of the answers that the run samples anyway.
  Result<std::optional<ModelSample>> sample(Engine& engine, std::int64_t step,
                                            const Signals* signals) override;
  bool samples_again() const noexcept override { return false; }

 private:
  PolicyTask(const TrainConfig& config, std::unique_ptr<PolicyIterations> iterations)
      : config_(config), iterations_(std::move(iterations)) {}
  void warn_of_equal_rewards(const MetricsLine& line, Observer& observer);
  void warn_of_mismatch(const MetricsLine& line, Observer& observer);

  const TrainConfig& config_;
  const std::unique_ptr<PolicyIterations> iterations_;
  std::int64_t equal_in_a_row_ = 0;  // steps whose rewards were equal
  bool warned_of_mismatch_ = false;
};

}  // namespace strata

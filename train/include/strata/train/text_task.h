#pragma once

#include <memory>

#include <strata/batches/micro_batches.h>
#include <strata/train/expert_figures.h>
#include <strata/train/router_bias.h>
#include <strata/train/run_task.h>

namespace strata {

struct TrainConfig;

/// A run that trains on the micro-batches of its data: by the next token, unless a class derived from this
/// one has another loss.
class TextTask : public RunTask {
 public:
  TextTask(const TrainConfig& config, const TrainingData& data);

  Status begin(Engine& engine, Observer& observer) override;
  Status resume(Io& io, const std::string& checkpoint, const std::string& run) override;
  TaskState state(std::int64_t steps) const override;
  std::map<std::string, std::string> manifest_state() const override { return {}; }
  Status check_is_whole(const Engine& engine) const override;

  bool is_due(std::int64_t) const noexcept override { return false; }
  Status prepare(Engine&, std::int64_t, const std::function<bool()>&) override { return {}; }
  Status step(Engine& engine, double lr, StepReport& report) override;
  Status after_step(Engine& engine, MetricsLine& line, Observer& observer) override;
  BatchSource* batches() noexcept override { return batches_.get(); }
  double tokens_of_step() const noexcept override;

  /// Continues the prompt of the samples (log.sample_prompt).
  Result<std::optional<ModelSample>> sample(Engine& engine, std::int64_t step,
                                            const Signals* signals) override;
  bool samples_again() const noexcept override { return true; }

 protected:
  const TrainConfig& config() const noexcept { return config_; }
  const TrainingData& data() const noexcept { return data_; }

 private:
  const TrainConfig& config_;
  const TrainingData& data_;
  ExpertLoad expert_load_;
  const RouterBias router_bias_;
  bool lacks_biases_ = false;  // whether the last step has not changed them
  std::unique_ptr<MicroBatches>
      batches_;  // from begin() or resume() on, since copies of pairs share what they know
};

}  // namespace strata

#pragma once

#include <strata/train/text_task.h>

namespace strata {

/// A run that compares pairs of answers: train.objective=reward, and dpo, whose reference is the model that
/// the run starts from.
class PairTask final : public TextTask {
 public:
  using TextTask::TextTask;
  static Result<std::unique_ptr<RunTask>> create(const TrainConfig& config, const TrainingData& data);

  /// Computes what the reference gives the pairs, with the present parameters.
  Status begin(Engine& engine, Observer& observer) override;
  Status resume(Io& io, const std::string& checkpoint, const std::string& run) override;
  TaskState state(std::int64_t steps) const override;
  Status after_step(Engine& engine, MetricsLine& line, Observer& observer) override;
  Result<std::optional<ModelSample>> sample(Engine& engine, std::int64_t step,
                                            const Signals* signals) override;

 private:
  Status score_pairs(Engine& engine, Observer& observer);
};

}  // namespace strata

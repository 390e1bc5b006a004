#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

class RunTask;
class TrainingData;
struct TrainConfig;

/// The task of a value of train.objective.
struct TaskKind {
  std::string_view objective;
  bool runs_on_ranks;  ///< whether several ranks may run it
  /// Creates the task, which refers to its arguments: they outlive it. Errors: those of the task.
  Result<std::unique_ptr<RunTask>> (*create)(const TrainConfig& config, const TrainingData& data);
};
using TaskKinds = std::span<const TaskKind>;

/// Training of a language model by the next token: train.objective=lm. Those of alignment are in
/// strata/align/tasks.h.
TaskKinds text_tasks() noexcept;
/// Errors: `unsupported` if `kinds` have no task for the run's objective.
Result<const TaskKind*> task_kind(const TrainConfig& config, TaskKinds kinds);

}  // namespace strata

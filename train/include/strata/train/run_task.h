#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <strata/batches/training_data.h>
#include <strata/engine/engine.h>
#include <strata/runtime/signals.h>
#include <strata/session/checkpoint.h>
#include <strata/train/observer.h>
#include <strata/train/run_folder.h>
#include <strata/train/task_kind.h>

namespace strata {

/// A text that shows what a model makes of a prompt.
struct ModelSample {
  std::string prompt, text;
};

/// A kind of run: what its steps train on and compute, and what its checkpoints have besides the states of
/// parameters. A run calls begin() or resume() once, and then its trainer for each step prepare(), if it
/// is due, step() and after_step(). All ranks of a run have a task each. Not thread-safe.
class RunTask {
 public:
  virtual ~RunTask() = default;

  /// Begins a new run, whose parameters are set. Errors: those of the engine.
  virtual Status begin(Engine& engine, Observer& observer) = 0;
  /// Goes on from `checkpoint` of the run in the folder `run`. Errors: `corrupt` if it lacks something;
  /// `invalid` for a checkpoint of other data.
  virtual Status resume(Io& io, const std::string& checkpoint, const std::string& run) = 0;
  /// The task's state for a checkpoint after `steps` steps.
  virtual TaskState state(std::int64_t steps) const = 0;
  /// The task's entries about the run in that checkpoint's manifest.
  virtual std::map<std::string, std::string> manifest_state() const = 0;
  /// Errors: `internal` with what the engine's states lack of a step that a run could go on from.
  virtual Status check_is_whole(const Engine& engine) const = 0;

  /// Whether the step after `steps` needs prepare().
  virtual bool is_due(std::int64_t steps) const noexcept = 0;
  /// Errors: `cancelled` once `stops` returns true; those of the engine.
  virtual Status prepare(Engine& engine, std::int64_t steps, const std::function<bool()>& stops) = 0;
  /// What was prepared for the step after `steps`, as lines of JSON for rollouts.jsonl. Errors: those of
  /// decoding.
  virtual Result<std::string> prepared(std::int64_t /*steps*/) const { return std::string(); }
  /// Does a step. Errors: those of Engine::train_step().
  virtual Status step(Engine& engine, double lr, StepReport& report) = 0;
  /// Adds to the line of the step what is known of it beside its report, and to the report what else it
  /// trained. Nothing is allocated.
  virtual Status after_step(Engine& engine, MetricsLine& line, Observer& observer) = 0;
  /// The batches that the steps train on; null if they only exist once prepared.
  virtual BatchSource* batches() noexcept = 0;
  /// Tokens of the present step.
  virtual double tokens_of_step() const noexcept = 0;

  /// A sample of the model after `step`; nothing if its outputs are no texts. `signals` may cut it short;
  /// null: nothing does.
  virtual Result<std::optional<ModelSample>> sample(Engine& engine, std::int64_t step,
                                                    const Signals* signals) = 0;
  /// Whether a run that is resumed behind its last step samples again.
  virtual bool samples_again() const noexcept = 0;
};

}  // namespace strata

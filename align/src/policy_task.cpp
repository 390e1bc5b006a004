#include "policy_task.h"

#include <utility>

#include <fmt/format.h>

#include <strata/config/train_config.h>
#include <strata/config/objective.h>
#include <strata/config/run_layout.h>
#include <strata/runtime/str.h>
#include <strata/train/lr_schedule.h>

namespace strata {
namespace {

constexpr const char* kAnswers = "rollouts";

Result<std::string> answers_of(Io& io, const TrainConfig& config, const Manifest& manifest,
                               const TaskState& task, const std::string& run) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 36;
  const std::int64_t steps = policy_sizes(config).steps();
  const auto found = task.find(kAnswers);
  if (found != task.end() || manifest.step % steps == 0) return found == task.end() ? "" : found->second;
  // A file that runs had beside their checkpoints, where it may be lost like any other.
  auto read =
      read_text(io, str(run, "/", kRolloutsPrefix, manifest.step / steps, kRolloutsSuffix), kMaxBytes);
  if (read.has_value() || read.status().code() != Code::not_found) return read;
  return Status::error(Code::corrupt, std::string(read.status().message()));
}

}  // namespace

Result<std::unique_ptr<RunTask>> PolicyTask::create(const TrainConfig& config, const TrainingData& data) {
  STRATA_TRY_ASSIGN(auto iterations, PolicyIterations::create(config, data));
  return std::unique_ptr<RunTask>(new PolicyTask(config, std::move(iterations)));
}

Status PolicyTask::resume(Io& io, const std::string& checkpoint, const std::string& run) {
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  STRATA_TRY_ASSIGN(const TaskState task, read_task_state(io, checkpoint, manifest));
  STRATA_TRY_ASSIGN(const std::string answers, answers_of(io, config_, manifest, task, run));
  return iterations_->resume(manifest.step, manifest.run, answers).annotate(checkpoint);
}

TaskState PolicyTask::state(std::int64_t steps) const {
  TaskState task;
  if (std::string answers = iterations_->answers(steps); !answers.empty())
    task[kAnswers] = std::move(answers);
  return task;
}

Status PolicyTask::check_is_whole(const Engine& engine) const {
  if (!objective_of(config_).has_critic || engine.steps(1) == engine.steps()) return {};
  return Status::error(Code::internal, str("the critic lacks step ", engine.steps()));
}

Status PolicyTask::after_step(Engine& engine, MetricsLine& line, Observer& observer) {
  const double lr = config_.align.critic_lr.value_or(config_.optim.lr);
  StepReport critic;
  critic.flags = line.report.flags;
  STRATA_TRY(iterations_->after_step(engine, cpuopt::learning_rate(lr_schedule(config_, lr), line.step), line,
                                     critic));
  warn_of_equal_rewards(line, observer);
  warn_of_mismatch(line, observer);
  if (!objective_of(config_).has_critic) return {};
  line.report.seconds += critic.seconds;
  line.report.times += critic.times;
  line.report.overflow_retries += critic.overflow_retries;
  line.report.speculated += critic.speculated;
  line.report.rolled_back += critic.rolled_back;
  if (!critic.skipped) return {};
  observer.on_message(str("step ", line.step, " of the critic skipped: ", critic.skip_reason));
  line.report.skipped = true;
  line.report.skip_reason = critic.skip_reason;
  return {};
}

// Advantages are rewards beside those of the same prompt: if these are equal, only the divergence is learned
// from.
void PolicyTask::warn_of_equal_rewards(const MetricsLine& line, Observer& observer) {
  constexpr std::int64_t kWarnAfter = 5;
  equal_in_a_row_ = line.policy.equal_rewards == 1 ? equal_in_a_row_ + 1 : 0;
  if (equal_in_a_row_ == kWarnAfter && !objective_of(config_).has_critic)
    observer.on_message(str("steps ", line.step - kWarnAfter + 1, " to ", line.step,
                            " learned nothing from the rewards: all ", config_.align.samples,
                            " answers to each prompt had the same one. Easier prompts, a reward with "
                            "degrees or more answers (align.samples) help"));
}

void PolicyTask::warn_of_mismatch(const MetricsLine& line, Observer& observer) {
  if (line.policy.sampler_mismatch == 0 || config_.align.old_log_probs != "sampler" || warned_of_mismatch_)
    return;
  warned_of_mismatch_ = true;
  observer.on_message(str("step ", line.step, ": ", line.policy.sampler_mismatch,
                          " tokens have another log-probability in training than the sampler gave them, so "
                          "that their ratios do not begin at 1. align.old_log_probs=scored computes them by "
                          "the rows of training"));
}

Result<std::optional<ModelSample>> PolicyTask::sample(Engine&, std::int64_t step, const Signals*) {
  if (iterations_->batches().rollouts().empty()) return std::optional<ModelSample>();
  STRATA_TRY_ASSIGN(PolicyIterations::Sample sample, iterations_->sample(step));
  return ModelSample{std::move(sample.prompt),
                     fmt::format("{} (reward {:.4g})", sample.answer, sample.reward)};
}

}  // namespace strata

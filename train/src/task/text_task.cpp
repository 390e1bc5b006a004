#include <strata/train/text_task.h>

#include <strata/config/model_choice.h>
#include <strata/config/train_config.h>
#include <strata/plan/plan_text.h>
#include <strata/runtime/str.h>

#include "loop/sample_text.h"

namespace strata {

TextTask::TextTask(const TrainConfig& config, const TrainingData& data)
    : config_(config),
      data_(data),
      expert_load_(decoder_config(config), router_losses(config)),
      router_bias_(config) {}

Status TextTask::begin(Engine&, Observer&) {
  batches_ = data_.train_batches(config_.train.micro_batch);
  return {};
}
Status TextTask::resume(Io&, const std::string&, const std::string&) {
  batches_ = data_.train_batches(config_.train.micro_batch);
  return {};
}
TaskState TextTask::state(std::int64_t) const { return {}; }

Status TextTask::check_is_whole(const Engine& engine) const {
  if (!lacks_biases_) return {};
  return Status::error(Code::internal, str("biases of routers lack step ", engine.steps()));
}

Status TextTask::step(Engine& engine, double lr, StepReport& report) {
  STRATA_TRY(engine.train_step(*batches_, lr, report));
  if (!router_bias_.any() || report.skipped) return {};
  lacks_biases_ = true;
  STRATA_TRY(router_bias_.after_step(engine));
  lacks_biases_ = false;
  return {};
}

Status TextTask::after_step(Engine& engine, MetricsLine& line, Observer&) {
  line.experts = expert_load_.of_step(engine, config_.train.grad_accum);
  return {};
}

double TextTask::tokens_of_step() const noexcept { return tokens_per_step(config_); }

Result<std::optional<ModelSample>> TextTask::sample(Engine& engine, std::int64_t step,
                                                    const Signals* signals) {
  const TextSampleOptions options{.tokens = config_.log.sample_tokens,
                                  .seed = config_.train.seed + static_cast<std::uint64_t>(step)};
  STRATA_TRY_ASSIGN(SamplePrompt prompt, sample_prompt(config_.log.sample_prompt, data_));
  STRATA_TRY_ASSIGN(std::string text, sample_text(engine, data_.tokenizer(), prompt.ids, options, signals));
  return ModelSample{std::move(prompt.text), std::move(text)};
}

namespace {

Result<std::unique_ptr<RunTask>> create_text_task(const TrainConfig& config, const TrainingData& data) {
  return std::make_unique<TextTask>(config, data);
}
constexpr TaskKind kTextTasks[] = {{"lm", true, create_text_task}};

}  // namespace

TaskKinds text_tasks() noexcept { return kTextTasks; }

Result<const TaskKind*> task_kind(const TrainConfig& config, TaskKinds kinds) {
  std::string known;
  for (const TaskKind& kind : kinds) {
    if (kind.objective == config.train.objective) return &kind;
    known += str(known.empty() ? "" : ", ", kind.objective);
  }
  return Status::error(Code::unsupported, str("train.objective = ", config.train.objective,
                                              ", but this program runs ", known, " (RunRequest::tasks)"));
}

}  // namespace strata

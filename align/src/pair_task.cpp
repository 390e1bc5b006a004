#include "pair_task.h"

#include <strata/config/objective.h>
#include <strata/config/train_config.h>
#include <strata/infer/pair_sums.h>
#include <strata/infer/reference.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata {

Result<std::unique_ptr<RunTask>> PairTask::create(const TrainConfig& config, const TrainingData& data) {
  return std::make_unique<PairTask>(config, data);
}

Status PairTask::begin(Engine& engine, Observer& observer) {
  if (objective_of(config()).has_reference) STRATA_TRY(score_pairs(engine, observer));
  return TextTask::begin(engine, observer);
}

Status PairTask::score_pairs(Engine& engine, Observer& observer) {
  for (const ReferencePart& part : reference_parts(data())) {
    if (part.pairs == nullptr) continue;
    const SteadyClock clock;
    std::int64_t said_ns = clock.now_ns();
    STRATA_TRY(compute_reference(engine, *part.pairs, [&](std::int64_t done, std::int64_t n) {
      constexpr std::int64_t kBetweenNs = 5'000'000'000;
      if (clock.now_ns() - said_ns < kBetweenNs) return;
      said_ns = clock.now_ns();
      observer.on_message(
          str(part.key, ": the reference's log-probabilities, ", done, " of ", plural(n, "micro-batch")));
    }));
  }
  return {};
}

Status PairTask::resume(Io& io, const std::string& checkpoint, const std::string& run) {
  if (!objective_of(config()).has_reference) return TextTask::resume(io, checkpoint, run);
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  STRATA_TRY_ASSIGN(const TaskState task, read_task_state(io, checkpoint, manifest));
  for (const ReferencePart& part : reference_parts(data())) {
    if (part.pairs == nullptr) continue;
    STRATA_TRY_ASSIGN(std::vector<float> scores, kept_reference(io, part, task, run));
    part.pairs->set_reference(std::move(scores));
  }
  return TextTask::resume(io, checkpoint, run);
}

TaskState PairTask::state(std::int64_t) const {
  TaskState task;
  for (const ReferencePart& part : reference_parts(data())) {
    if (part.pairs == nullptr || part.pairs->reference() == nullptr) continue;
    const std::vector<float>& scores = *part.pairs->reference();
    task[part.name].assign(reinterpret_cast<const char*>(scores.data()), scores.size() * sizeof(float));
  }
  return task;
}

Status PairTask::after_step(Engine& engine, MetricsLine& line, Observer&) {
  if (engine.world() != nullptr) return {};  // a rank knows its own pairs alone
  PairSums sums;
  for (std::int32_t k = 0; k < config().train.grad_accum; ++k) sums.add(engine.output("train", "stats", k));
  line.pairs = sums.figures();
  return {};
}

Result<std::optional<ModelSample>> PairTask::sample(Engine& engine, std::int64_t step,
                                                    const Signals* signals) {
  if (objective_of(config()).scores) return std::optional<ModelSample>();  // it gives no tokens
  return TextTask::sample(engine, step, signals);
}

}  // namespace strata

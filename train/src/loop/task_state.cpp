#include "loop/task_state.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include <strata/runtime/clock.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/batches/pair_batches.h>
#include <strata/infer/evaluation.h>
#include <strata/train/run_folder.h>
#include <strata/config/run_layout.h>

#include "loop/initial_states.h"

namespace strata::detail {
namespace {

constexpr const char* kAnswers = "rollouts";

/// The pairs of one key, and where their scores are kept.
struct Part {
  PairBatches* pairs;
  const char *name, *key;
  std::size_t n_scores() const { return 2 * pairs->data().n_pairs_of_cache(); }
};
std::array<Part, 2> parts_of(const TrainingData& data) {
  return {Part{data.train_pairs(), "reference", "data.train"},
          Part{data.val_pairs(), "reference-val", "data.val"}};
}

// A file that runs had beside their checkpoints, where it may be lost like any other.
template <class T>
Result<T> or_corrupt(Result<T> read) {
  if (read.has_value() || read.status().code() != Code::not_found) return read;
  return Status::error(Code::corrupt, std::string(read.status().message()));
}

Result<std::vector<float>> scores_of(Io& io, const Part& part, const TaskState& task,
                                     const std::string& run) {
  const auto found = task.find(part.name);
  if (found == task.end())
    return or_corrupt(read_reference(io, str(run, "/", part.name, ".bin"), part.n_scores()));
  std::vector<float> scores(part.n_scores());
  if (found->second.size() != scores.size() * sizeof(float))
    return Status::error(
        Code::invalid, str("the checkpoint has ", found->second.size() / sizeof(float),
                           " scores of the reference for ", part.key, ", whose pairs have ", scores.size()));
  std::memcpy(scores.data(), found->second.data(), found->second.size());
  return scores;
}

Result<std::string> answers_of(Io& io, const TrainConfig& config, const Manifest& manifest,
                               const TaskState& task, const std::string& run) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 36;
  const std::int64_t steps = policy_sizes(config).steps();
  const auto found = task.find(kAnswers);
  if (found != task.end() || manifest.step % steps == 0) return found == task.end() ? "" : found->second;
  return or_corrupt(
      read_text(io, str(run, "/", kRolloutsPrefix, manifest.step / steps, kRolloutsSuffix), kMaxBytes));
}

}  // namespace

Status compute_references(Job& job, const TrainConfig& config, const TrainingData& training_data,
                          Observer& observer) {
  if (!has_reference(config)) return {};
  for (const Part& part : parts_of(training_data)) {
    if (part.pairs == nullptr) continue;
    const SteadyClock clock;
    std::int64_t said_ns = clock.now_ns();
    STRATA_TRY(compute_reference(job.engine(), *part.pairs, [&](std::int64_t done, std::int64_t n) {
      constexpr std::int64_t kBetweenNs = 5'000'000'000;
      if (clock.now_ns() - said_ns < kBetweenNs) return;
      said_ns = clock.now_ns();
      observer.on_message(
          str(part.key, ": the reference's log-probabilities, ", done, " of ", plural(n, "micro-batch")));
    }));
  }
  return {};
}

TaskState task_state(const TrainingData& training_data, const PolicyIterations* policy, std::int64_t steps) {
  TaskState task;
  for (const Part& part : parts_of(training_data)) {
    if (part.pairs == nullptr || part.pairs->reference() == nullptr) continue;
    const std::vector<float>& scores = *part.pairs->reference();
    task[part.name].assign(reinterpret_cast<const char*>(scores.data()), scores.size() * sizeof(float));
  }
  if (policy == nullptr) return task;
  if (std::string answers = policy->answers(steps); !answers.empty()) task[kAnswers] = std::move(answers);
  return task;
}

Status load_task_state(Io& io, const TrainConfig& config, const std::string& folder, const std::string& run,
                       const TrainingData& training_data, PolicyIterations* policy) {
  if (!has_reference(config) && policy == nullptr) return {};
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, folder));
  STRATA_TRY_ASSIGN(const TaskState task, read_task_state(io, folder, manifest));
  for (const Part& part : parts_of(training_data)) {
    if (part.pairs == nullptr || !has_reference(config)) continue;
    STRATA_TRY_ASSIGN(std::vector<float> scores, scores_of(io, part, task, run));
    part.pairs->set_reference(std::move(scores));
  }
  if (policy == nullptr) return {};
  STRATA_TRY_ASSIGN(const std::string answers, answers_of(io, config, manifest, task, run));
  return policy->resume(manifest.step, manifest.run, answers).annotate(folder);
}

}  // namespace strata::detail

namespace strata {

Status set_reference(Engine& engine, const TrainConfig& config, PairBatches& pairs, const std::string& digest,
                     const std::string& checkpoint, Io& io) {
  if (!has_reference(config)) return {};
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  STRATA_TRY_ASSIGN(const TaskState task, read_task_state(io, checkpoint, manifest));
  for (const auto& [name, key] : {std::pair{"reference-val", "data.val"}, std::pair{"reference", "data"}}) {
    const auto kept_for = manifest.run.find(key);
    if (kept_for == manifest.run.end() || kept_for->second != digest || !task.contains(name)) continue;
    STRATA_TRY_ASSIGN(std::vector<float> scores, detail::scores_of(io, {&pairs, name, key}, task, ""));
    pairs.set_reference(std::move(scores));
    return {};
  }
  if (engine.world() != nullptr)
    return Status::error(Code::unsupported,
                         str(checkpoint,
                             " has no scores of the reference for this data, and ranks that share the "
                             "model do not compute them; evaluate it with one"));
  STRATA_TRY(set_initial_states(engine, config, io));
  return compute_reference(engine, pairs, [](std::int64_t, std::int64_t) {});
}

}  // namespace strata

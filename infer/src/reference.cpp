#include <strata/infer/reference.h>

#include <cstring>
#include <utility>

#include <strata/config/objective.h>
#include <strata/infer/initial_states.h>
#include <strata/runtime/str.h>

namespace strata {

std::array<ReferencePart, 2> reference_parts(const TrainingData& data) {
  return {ReferencePart{data.train_pairs(), "reference", "data.train"},
          ReferencePart{data.val_pairs(), "reference-val", "data.val"}};
}

Result<std::vector<float>> kept_reference(Io& io, const ReferencePart& part, const TaskState& task,
                                          const std::string& run) {
  const auto found = task.find(part.name);
  if (found == task.end()) {
    // A file that runs had beside their checkpoints, where it may be lost like any other.
    auto read = read_reference(io, str(run, "/", part.name, ".bin"), part.n_scores());
    if (read.has_value() || read.status().code() != Code::not_found) return read;
    return Status::error(Code::corrupt, std::string(read.status().message()));
  }
  std::vector<float> scores(part.n_scores());
  if (found->second.size() != scores.size() * sizeof(float))
    return Status::error(
        Code::invalid, str("the checkpoint has ", found->second.size() / sizeof(float),
                           " scores of the reference for ", part.key, ", whose pairs have ", scores.size()));
  std::memcpy(scores.data(), found->second.data(), found->second.size());
  return scores;
}

Status set_reference(Engine& engine, const TrainConfig& config, PairBatches& pairs, const std::string& digest,
                     const std::string& checkpoint, Io& io) {
  if (!objective_of(config).has_reference) return {};
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  STRATA_TRY_ASSIGN(const TaskState task, read_task_state(io, checkpoint, manifest));
  for (const auto& [name, key] : {std::pair{"reference-val", "data.val"}, std::pair{"reference", "data"}}) {
    const auto kept_for = manifest.run.find(key);
    if (kept_for == manifest.run.end() || kept_for->second != digest || !task.contains(name)) continue;
    STRATA_TRY_ASSIGN(std::vector<float> scores, kept_reference(io, {&pairs, name, key}, task, ""));
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

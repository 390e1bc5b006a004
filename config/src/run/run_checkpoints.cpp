#include <strata/config/run_checkpoints.h>

#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include <strata/config/train_config.h>
#include <strata/runtime/str.h>

namespace strata {

constexpr std::uint64_t kMetricsLimit = std::uint64_t{1} << 30;

std::string checkpoint_dir(const TrainConfig& config, const std::string& path) {
  return config.checkpoint.dir.empty() ? path + "/checkpoints" : config.checkpoint.dir;
}

Result<std::vector<std::string>> list_checkpoints(const TrainConfig& config, const std::string& path, Io& io,
                                                  const CheckpointWarning& warn) {
  const std::string dir = checkpoint_dir(config, path);
  if (!io.exists(dir)) return std::vector<std::string>();
  auto whole = complete_checkpoints(io, dir, warn);
  if (!whole.has_value() && whole.status().code() == Code::not_found) return std::vector<std::string>();
  return whole;
}

Status no_checkpoint(const TrainConfig& config, const std::string& path) {
  return Status::error(Code::not_found,
                       str(path, " has no checkpoint yet in ", checkpoint_dir(config, path),
                           "; wait until the run saves one, or continue it: strata train --resume ", path));
}

Result<std::string> find_checkpoint(const std::vector<std::string>& checkpoints, std::int64_t step, Io& io) {
  std::string steps;
  for (const std::string& checkpoint : checkpoints) {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
    if (manifest.step == step) return checkpoint;
    steps = str(manifest.step, steps.empty() ? "" : ", ", steps);
  }
  return Status::error(Code::not_found, str("no checkpoint of step ", step, "; available: ", steps));
}

namespace {

/// Validation losses by step, from metrics.jsonl.
Result<std::map<std::int64_t, double>> validations_of(const std::string& path, Io& io) {
  std::map<std::int64_t, double> losses;
  STRATA_TRY_ASSIGN(const std::string all, read_text(io, str(path, "/metrics.jsonl"), kMetricsLimit));
  const std::string_view text = all;
  const auto number = [](std::string_view line, std::string_view key, auto& into) {
    const std::size_t at = line.find(key);
    return at != std::string_view::npos &&
           std::from_chars(line.data() + at + key.size(), line.data() + line.size(), into).ec == std::errc();
  };
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const std::string_view line = text.substr(at, end - at);
    std::int64_t step = 0;
    double loss = 0;
    if (number(line, "{\"step\": ", step) && number(line, "\"val_loss\": ", loss)) losses[step] = loss;
  }
  return losses;
}

}  // namespace

Result<std::string> best_checkpoint(const std::vector<std::string>& checkpoints, const std::string& path,
                                    Io& io, const CheckpointWarning& warn) {
  STRATA_TRY_ASSIGN(const auto losses, validations_of(path, io));
  const std::pair<const std::int64_t, double>* best = nullptr;
  std::string found, steps, validated;
  for (const std::string& checkpoint : checkpoints) {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
    steps = str(manifest.step, steps.empty() ? "" : ", ", steps);
    const auto at = losses.find(manifest.step);
    if (at == losses.end() || (best != nullptr && at->second >= best->second)) continue;
    best = &*at;
    found = checkpoint;
  }
  for (const auto& [step, loss] : losses) validated += str(validated.empty() ? "" : ", ", step);
  if (best == nullptr)
    return Status::error(Code::not_found,
                         str(path, " has no checkpoint with a validation: its checkpoints are of steps ",
                             steps, ", its validations of ", validated.empty() ? "none" : validated,
                             "; name a step, or train with checkpoint.every and train.eval_every alike"));
  for (const auto& [step, loss] : losses)
    if (loss < best->second)
      warn(str("the validation at step ", step, " has a loss of ", loss, ", below the ", best->second,
               " of step ", best->first, ", but its checkpoint is not kept (checkpoint.keep)"));
  return found;
}

Result<std::string> choose_checkpoint(const TrainConfig& config, const std::string& path, std::int64_t asked,
                                      Io& io, const CheckpointWarning& warn) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints, list_checkpoints(config, path, io, warn));
  if (checkpoints.empty()) return no_checkpoint(config, path);
  if (asked == kNewestCheckpoint) return checkpoints.front();
  auto found = asked == kBestCheckpoint ? best_checkpoint(checkpoints, path, io, warn)
                                        : find_checkpoint(checkpoints, asked, io);
  if (!found.has_value() && asked != kBestCheckpoint) return found.status().annotate(path);
  return found;
}

}  // namespace strata

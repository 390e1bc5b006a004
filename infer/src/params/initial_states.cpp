#include <strata/infer/initial_states.h>

#include <algorithm>

#include <strata/config/train_config.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>
#include <strata/session/checkpoint_folders.h>
#include <strata/infer/pretrained_values.h>

namespace strata {
namespace {

// The checkpoint itself, or the newest in a folder of them.
Result<std::string> checkpoint_in(const std::string& path, Io& io) {
  if (!io.exists(path)) return Status::error(Code::not_found, str(path, " does not exist"));
  if (io.exists(path + "/manifest.json")) return path;
  return newest_checkpoint(io, path);
}

Status load_states(Engine& engine, const std::string& path, const HfFolder& folder, Io& io) {
  STRATA_TRY_ASSIGN(const std::string checkpoint, checkpoint_in(path, io));
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  if (!manifest.frozen.empty())
    return Status::error(Code::unsupported,
                         str(checkpoint, " leaves out ", manifest.frozen.size(),
                             " frozen tensors: it is of a run of adapters, which --resume continues"));
  if (!manifest.param_steps.empty()) {
    const auto& [name, steps] = *manifest.param_steps.begin();
    return Status::error(Code::unsupported,
                         str(checkpoint, ": ", name, " was updated in ", steps, " of ", manifest.step,
                             " steps; a run updates all parameters in each"));
  }
  const auto states = engine.state_plan().states();
  for (const Payload payload : {Payload::param, Payload::m, Payload::v}) {
    const bool is_there = io.exists(payload_file(checkpoint, payload));
    const bool is_needed = std::find(states.begin(), states.end(), payload) != states.end();
    if (is_there != is_needed)
      return Status::error(
          Code::invalid,
          str(checkpoint, is_there ? " has " : " has no ", to_string(payload), ".safetensors, and ",
              cpuopt::to_string(engine.state_plan().options.optimizer.optimizer), " has ",
              is_needed ? "such a state" : "no such state"));
  }
  STRATA_TRY(check_digests(io, checkpoint, manifest));
  for (const Payload payload : states) {
    const std::string file = payload_file(checkpoint, payload);
    if (payload == Payload::ema && !io.exists(file)) continue;  // it begins with the parameters
    STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> tensors,
                      HfFolder::open_tensors(io, file, folder.config()));
    // A trainer's optimizer does not have its frozen parameters.
    STRATA_TRY(engine.fill(payload, [&](const StatePiece& piece, std::span<float> values) {
      const bool is_frozen = payload == Payload::param && !tensors->has(piece.name);
      return (is_frozen ? folder : *tensors).read_part(piece.name, piece.offset, values);
    }));
  }
  engine.set_steps(manifest.step);
  return {};
}

}  // namespace

Status set_initial_states(Engine& engine, const TrainConfig& config, Io& io) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<PretrainedValues> given, PretrainedValues::open(io, config));
  STRATA_TRY(given->check_base());
  if (config.model.states.empty()) return given->initialize(engine, config.train.seed);
  STRATA_TRY(engine.initialize(config.train.seed));
  return load_states(engine, config.model.states, *given->folder(), io).annotate("model.states");
}

}  // namespace strata

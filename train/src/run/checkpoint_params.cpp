#include <strata/train/pretrained/checkpoint_params.h>

#include <strata/runtime/str.h>
#include <strata/train/pretrained/pretrained_values.h>

namespace strata {

Result<FrozenSource> open_frozen_source(const TrainConfig& config, Io& io) {
  const std::string& from = config.model.from;
  if (from.empty()) return FrozenSource{};
  TrainConfig base = config;
  base.adapter.from.clear();  // the checkpoint has the adapter
  auto opened = PretrainedValues::open(io, base);
  if (!opened.has_value())
    return opened.status().annotate(str(
        "model.from = ", from,
        ", which has the frozen parameters of this run (if it was moved, set model.from to its new place)"));
  const auto read = [from, values = std::shared_ptr<PretrainedValues>(*std::move(opened))](
                        const StatePiece& piece, std::span<float> into) -> Status {
    STRATA_TRY_ASSIGN(const bool is_given, values->read(piece, into));
    if (is_given) return {};
    return Status::error(Code::not_found, str("model.from = ", from, " has no parameter ", piece.name));
  };
  return FrozenSource{from, read};
}

Result<std::unique_ptr<CheckpointParams>> CheckpointParams::open(const TrainConfig& config,
                                                                 const std::string& checkpoint, Io& io) {
  std::unique_ptr<CheckpointParams> params(new CheckpointParams(config, io));
  STRATA_TRY_ASSIGN(params->manifest_, read_manifest(io, checkpoint));
  STRATA_TRY_ASSIGN(params->tensors_,
                    CheckpointTensors::open(io, checkpoint, params->manifest_, Payload::param));
  return params;
}

Status CheckpointParams::read(std::string_view name, std::span<float> values) {
  return manifest_.frozen.contains(name) ? read_frozen(name, values) : tensors_->read(name, values);
}

Status CheckpointParams::read_frozen(std::string_view name, std::span<float> values) {
  if (!frozen_.read) {
    STRATA_TRY_ASSIGN(frozen_, open_frozen_source(config_, io_));
  }
  if (!frozen_.read)
    return Status::error(Code::invalid, str(tensors_->path(), " leaves out ", name,
                                            ", and model.from does not say which folder has it"));
  STRATA_TRY(frozen_.read({name, 0, std::ssize(values)}, values));
  BlockDigester digester;
  digester.update(std::as_bytes(values));
  return check_frozen(manifest_, name, digester.digest(), frozen_.name);
}

}  // namespace strata

#include <strata/train/pretrained/pretrained_values.h>

#include <strata/runtime/str.h>
#include <strata/train/training_data.h>

namespace strata {

Result<std::unique_ptr<PretrainedValues>> PretrainedValues::open(Io& io, const TrainConfig& config) {
  std::unique_ptr<PretrainedValues> values(new PretrainedValues);
  if (!config.model.from.empty()) {
    STRATA_TRY_ASSIGN(values->folder_, HfFolder::open(io, config.model.from));
  }
  const std::string& path = config.adapter.from;
  if (path.empty()) return values;
  const DecoderConfig decoder = decoder_config(config);
  STRATA_TRY_ASSIGN(values->adapter_, PeftFolder::open(io, path, decoder));
  STRATA_TRY_ASSIGN(const LoraSettings settings, lora_settings(config));
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets, lora_targets(decoder, settings));
  if (targets == values->adapter_->targets()) return values;
  return Status::error(Code::invalid, str("adapter.from = ", path,
                                          ": its modules, ranks or scales are not those of section adapter"));
}

Result<bool> PretrainedValues::read(const StatePiece& piece, std::span<float> values) const {
  if (adapter_ && adapter_->has(piece.name)) {
    STRATA_TRY(adapter_->read_part(piece.name, piece.offset, values));
  } else if (folder_ && folder_->has_param(piece.name)) {
    STRATA_TRY(folder_->read_part(piece.name, piece.offset, values));
  } else {
    return false;
  }
  return true;
}

Result<bool> PretrainedValues::read_quantized(const StatePiece& piece, const kernels::QuantizedMatrix& matrix,
                                              std::span<std::byte> bytes) const {
  if (!folder_ || !folder_->has_param(piece.name)) return false;
  return folder_->read_quantized(piece.name, matrix, piece.offset, bytes);
}

Status PretrainedValues::initialize(Engine& engine, std::uint64_t seed) const {
  return engine.initialize(
      seed, [&](const StatePiece& piece, std::span<float> values) { return read(piece, values); },
      [&](const StatePiece& piece, const kernels::QuantizedMatrix& matrix, std::span<std::byte> bytes) {
        return read_quantized(piece, matrix, bytes);
      });
}

}  // namespace strata

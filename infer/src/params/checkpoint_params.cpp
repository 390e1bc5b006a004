#include <strata/infer/checkpoint_params.h>

#include <algorithm>
#include <vector>

#include <strata/kernels/weight_quant.h>
#include <strata/model/adapter/lora.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/runtime/str.h>
#include <strata/infer/pretrained_values.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>

namespace strata {

namespace {

// The base of the run, without its adapter, which its checkpoints have; null if the run has no folder.
Result<std::shared_ptr<PretrainedValues>> open_base(const TrainConfig& config, Io& io) {
  const std::string& from = config.model.from;
  if (from.empty()) return std::shared_ptr<PretrainedValues>();
  TrainConfig base = config;
  base.adapter.from.clear();
  base.adapter.prompt_text.clear();
  auto opened = PretrainedValues::open(io, base);
  if (!opened.has_value())
    return opened.status().annotate(str(
        "model.from = ", from,
        ", which has the frozen parameters of this run (if it was moved, set model.from to its new place)"));
  return std::shared_ptr<PretrainedValues>(*std::move(opened));
}

Status missing(const TrainConfig& config, std::string_view name) {
  return Status::error(Code::not_found, str("model.from = ", config.model.from, " has no parameter ", name));
}

}  // namespace

Result<FrozenSource> open_frozen_source(Engine& engine, const TrainConfig& config, Io& io) {
  STRATA_TRY_ASSIGN(const std::shared_ptr<PretrainedValues> base, open_base(config, io));
  if (base == nullptr) return FrozenSource{};
  const auto values = [base, &config](const StatePiece& piece, std::span<float> into) -> Result<bool> {
    STRATA_TRY_ASSIGN(const bool is_given, base->read(piece, into));
    return is_given ? Result<bool>(true) : missing(config, piece.name);
  };
  const auto quantized = [base](const StatePiece& piece, const kernels::QuantizedMatrix& matrix,
                                std::span<std::byte> bytes) {
    return base->read_quantized(piece, matrix, bytes);
  };
  return FrozenSource{config.model.from, engine.initial_values(config.train.seed, values, quantized)};
}

Result<std::unique_ptr<CheckpointParams>> CheckpointParams::open(const TrainConfig& config,
                                                                 const std::string& checkpoint, Io& io,
                                                                 TrainedValues values) {
  std::unique_ptr<CheckpointParams> params(new CheckpointParams(config, io));
  if (const kernels::WeightFormat format = base_format(config); format != kernels::WeightFormat::full)
    params->quantized_ = quantized_matrices(decoder_config(config), format);
  STRATA_TRY_ASSIGN(params->manifest_, read_manifest(io, checkpoint));
  STRATA_TRY_ASSIGN(params->tensors_,
                    CheckpointTensors::open(io, checkpoint, params->manifest_, Payload::param));
  if (values == TrainedValues::newest) return params;
  if (!io.exists(payload_file(checkpoint, Payload::ema)))
    return Status::error(Code::invalid, str(checkpoint,
                                            " has no moving average of the parameters: the run was trained "
                                            "with optim.ema_decay = ",
                                            config.optim.ema_decay));
  STRATA_TRY_ASSIGN(params->average_,
                    CheckpointTensors::open(io, checkpoint, params->manifest_, Payload::ema));
  return params;
}

Status CheckpointParams::read(std::string_view name, std::span<float> values) {
  const auto matrix = quantized_.find(name);
  if (matrix == quantized_.end()) return read_held(name, values);
  std::vector<float> held(static_cast<std::size_t>(matrix->second.bytes()));
  STRATA_TRY(read_held(name, held));
  std::vector<std::byte> bytes(held.size());
  std::transform(held.begin(), held.end(), bytes.begin(),
                 [](float byte) { return static_cast<std::byte>(byte); });
  kernels::dequantize_matrix(matrix->second, bytes, 0, values);
  return {};
}

// As the run holds it: of a quantized matrix, its bytes.
Status CheckpointParams::read_held(std::string_view name, std::span<float> values) {
  if (average_ && average_->file().find(name) != nullptr) return average_->read(name, values);
  if (!manifest_.frozen.contains(name)) return tensors_->read(name, values);
  if (!base_) {
    STRATA_TRY_ASSIGN(base_, open_base(config_, io_));
  }
  if (!base_)
    return Status::error(Code::invalid, str(tensors_->path(), " leaves out ", name,
                                            ", and model.from does not say which folder has it"));
  STRATA_TRY(read_base({name, 0, std::ssize(values)}, values));
  BlockDigester digester;
  digester.update(std::as_bytes(values));
  return check_frozen(manifest_, name, digester.digest(), config_.model.from);
}

Status CheckpointParams::read_base(const StatePiece& piece, std::span<float> values) {
  const auto found = quantized_.find(piece.name);
  if (found == quantized_.end()) {
    STRATA_TRY_ASSIGN(const bool is_given, base_->read(piece, values));
    return is_given ? Status() : missing(config_, piece.name);
  }
  const kernels::QuantizedMatrix& matrix = found->second;
  std::vector<std::byte> bytes(values.size());
  STRATA_TRY_ASSIGN(const bool is_given, base_->read_quantized(piece, matrix, bytes));
  if (!is_given) {
    std::vector<float> whole(static_cast<std::size_t>(matrix.n_elems()));
    STRATA_TRY_ASSIGN(const bool has_values, base_->read({piece.name, 0, matrix.n_elems()}, whole));
    if (!has_values) return missing(config_, piece.name);
    STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
    kernels::quantize_matrix(matrix, whole, bytes, *pool);
  }
  std::transform(bytes.begin(), bytes.end(), values.begin(),
                 [](std::byte byte) { return static_cast<float>(byte); });
  return {};
}

}  // namespace strata

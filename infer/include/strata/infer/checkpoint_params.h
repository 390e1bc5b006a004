#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <strata/engine/engine.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/io/io.h>
#include <strata/session/checkpoint.h>

namespace strata {

struct TrainConfig;

class PretrainedValues;

/// The values that the checkpoints of a run leave out: those of the folder model.from, without its adapter,
/// as `engine` holds them; no source if the key is not set. Valid while `engine` and `config` are. Errors:
/// those of HfFolder::open(), with the key.
Result<FrozenSource> open_frozen_source(Engine& engine, const TrainConfig& config, Io& io);

/// Which values of the trained parameters are read: the newest, or their moving average (optim.ema_decay).
enum class TrainedValues : std::uint8_t { newest, average };

/// The parameters of one checkpoint of a run. Those that it leaves out are read from the folder model.from,
/// which is opened when it is first needed. Not thread-safe.
class CheckpointParams {
 public:
  /// `config` and `io` outlive the object. Errors: `invalid` if the run kept no average; those of
  /// read_manifest() and CheckpointTensors::open().
  static Result<std::unique_ptr<CheckpointParams>> open(const TrainConfig& config,
                                                        const std::string& checkpoint, Io& io,
                                                        TrainedValues values = TrainedValues::newest);
  /// Reads a whole parameter and checks its digest. Of a quantized matrix, these are the values that it
  /// stands for. Errors: those of CheckpointTensors::read(), open_frozen_source() and check_frozen().
  Status read(std::string_view name, std::span<float> values);

 private:
  CheckpointParams(const TrainConfig& config, Io& io) : config_(config), io_(io) {}
  Status read_held(std::string_view name, std::span<float> values);
  Status read_base(const StatePiece& piece, std::span<float> values);

  const TrainConfig& config_;
  Io& io_;
  Manifest manifest_;
  std::unique_ptr<CheckpointTensors> tensors_, average_;
  std::map<std::string, kernels::QuantizedMatrix, std::less<>> quantized_;  // keyed by parameter
  std::shared_ptr<PretrainedValues> base_;
};

}  // namespace strata

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <strata/runtime/io/io.h>
#include <strata/session/checkpoint.h>
#include <strata/train/train_config.h>

namespace strata {

/// The values that the checkpoints of a run leave out: those of the folder model.from, without its adapter;
/// no source if the key is not set. Errors: those of HfFolder::open(), with the key.
Result<FrozenSource> open_frozen_source(const TrainConfig& config, Io& io);

/// The parameters of one checkpoint of a run. Those that it leaves out are read from the folder model.from,
/// which is opened when it is first needed. Not thread-safe.
class CheckpointParams {
 public:
  /// `config` and `io` outlive the object. Errors: those of read_manifest() and CheckpointTensors::open().
  static Result<std::unique_ptr<CheckpointParams>> open(const TrainConfig& config,
                                                        const std::string& checkpoint, Io& io);
  /// Reads a whole parameter and checks its digest. Errors: those of CheckpointTensors::read(),
  /// open_frozen_source() and check_frozen().
  Status read(std::string_view name, std::span<float> values);

 private:
  CheckpointParams(const TrainConfig& config, Io& io) : config_(config), io_(io) {}
  Status read_frozen(std::string_view name, std::span<float> values);

  const TrainConfig& config_;
  Io& io_;
  Manifest manifest_;
  std::unique_ptr<CheckpointTensors> tensors_;
  FrozenSource frozen_;
};

}  // namespace strata

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <strata/model/hf/folder.h>
#include <strata/runtime/io/io.h>
#include <strata/train/load_config.h>
#include <strata/train/pretrained/checkpoint_params.h>

#include "args.h"

namespace strata::cli {

inline constexpr std::uint64_t kExportTextLimit = 256 << 20;  // bytes of a text file that is copied

/// The newest whole checkpoint of a run, whose parameters are read one after the other.
struct ExportedCheckpoint {
  std::string path;
  std::unique_ptr<CheckpointParams> params;
  ParamSource source() const {
    return [this](std::string_view name, std::span<float> into) { return params->read(name, into); };
  }
};
Result<ExportedCheckpoint> open_newest(const Args& args, const LoadedConfig& loaded, const std::string& run,
                                       Io& io);
/// The parameters of the whole model. `format` is the one asked for, for messages.
Result<ParamSource> whole_model_of(const ExportedCheckpoint& checkpoint, const LoadedConfig& loaded,
                                   std::string_view format);

/// Writes the model of a run as a GGUF file, and says so.
Result<std::string> export_gguf_file(const Args& args, const LoadedConfig& loaded, const std::string& run);

}  // namespace strata::cli

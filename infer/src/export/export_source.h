#pragma once

#include <map>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <strata/model/hf/folder.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/infer/checkpoint_params.h>
#include <strata/infer/pretrained_values.h>

#include <strata/infer/export_request.h>

namespace strata {
struct LoadedConfig;
}  // namespace strata

namespace strata::detail {

/// A whole checkpoint of a run, whose parameters are read one after the other.
struct ExportedCheckpoint {
  std::string path;
  std::unique_ptr<CheckpointParams> params;
  ParamSource source() const {
    return [of = params.get()](std::string_view name, std::span<float> into) { return of->read(name, into); };
  }
};
/// The checkpoint that the request asks for. `note` hears of damaged ones.
Result<ExportedCheckpoint> open_checkpoint(const ExportRequest& request, const LoadedConfig& loaded,
                                           const std::string& run, Io& io,
                                           const std::function<void(std::string_view)>& note);

/// A whole model that is written: of a run's checkpoint, or of a folder, with its adapter merged.
struct ExportedModel {
  std::string from;  ///< the checkpoint or the folder, for messages
  DecoderConfig decoder;
  ParamSource source;  ///< valid while the object is
  std::optional<Tokenizer> tokenizer;
  std::map<std::string, std::string> texts;  ///< files of a folder besides config.json and the weights
  std::string source_config;                 ///< the model's own config.json; empty: none
  HfTokenIds token_ids;
  std::string chat_template;         ///< Jinja; empty: none
  std::optional<OtherParts> others;  ///< what is written besides the text model; empty: nothing

  ExportedCheckpoint checkpoint;             ///< if a run is exported
  std::unique_ptr<PretrainedValues> folder;  ///< if a folder is exported
};
/// `format` is the one asked for, for messages.
Result<ExportedModel> model_of_run(const ExportRequest& request, const LoadedConfig& loaded,
                                   const std::string& run, std::string_view format,
                                   const std::function<void(std::string_view)>& note);
Result<ExportedModel> model_of_folder(const ExportRequest& request, const LoadedConfig& loaded,
                                      const std::string& folder);

/// Writes the model as a GGUF file, and says so. `note` hears of what llama.cpp does differently.
Result<std::string> export_gguf_file(const ExportRequest& request, const LoadedConfig& loaded,
                                     const ExportedModel& model,
                                     const std::function<void(std::string_view)>& note);

}  // namespace strata::detail

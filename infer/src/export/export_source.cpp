#include "export/export_source.h"

#include <strata/config/load_config.h>
#include <strata/text/tokenizer_config.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/infer/whole_model.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>

#include "export/export_texts.h"

namespace strata::detail {
namespace {

/// The text of a file that may be absent; then it is empty.
Result<std::string> text_if_there(Io& io, const std::string& path) {
  if (!io.exists(path)) return std::string();
  return read_text(io, path, kExportTextLimit);
}

Result<ParamSource> whole_model_of(const LoadedConfig& loaded, ParamSource parts, std::string_view format) {
  auto source = whole_model(loaded.config, std::move(parts));
  if (!source.has_value()) return source.status().annotate(str("--format ", format));
  return source;
}

/// What a run has recorded of other parts than its text model; nothing if these are not written.
Result<std::optional<OtherParts>> parts_of_run(const ExportRequest& request, const LoadedConfig& loaded,
                                               const std::string& run, std::string_view format,
                                               const std::function<void(std::string_view)>& note) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const std::string record, text_if_there(io, str(run, "/", kOtherPartsFile)));
  if (record.empty() || request.text_only || format == "gguf") return std::optional<OtherParts>();
  if (objective_of(loaded.config).scores) {
    note(
        str("note: the run trained a score, which no model with other parts has: the text model is written "
            "alone"));
    return std::optional<OtherParts>();
  }
  auto parts = other_parts_from_json(record);
  if (!parts.has_value()) return parts.status().annotate(str(run, "/", kOtherPartsFile));
  parts->folder = loaded.config.model.from;  // it may have been moved
  return std::optional(*std::move(parts));
}

}  // namespace

Result<ExportedCheckpoint> open_checkpoint(const ExportRequest& request, const LoadedConfig& loaded,
                                           const std::string& run, Io& io,
                                           const std::function<void(std::string_view)>& note) {
  ExportedCheckpoint checkpoint;
  STRATA_TRY_ASSIGN(checkpoint.path, choose_checkpoint(loaded.config, run, request.checkpoint, io, note));
  STRATA_TRY_ASSIGN(checkpoint.params,
                    CheckpointParams::open(loaded.config, checkpoint.path, io,
                                           request.ema ? TrainedValues::average : TrainedValues::newest));
  return checkpoint;
}

Result<ExportedModel> model_of_run(const ExportRequest& request, const LoadedConfig& loaded,
                                   const std::string& run, std::string_view format,
                                   const std::function<void(std::string_view)>& note) {
  Io& io = posix_io();
  ExportedModel model;
  STRATA_TRY_ASSIGN(model.tokenizer, Tokenizer::load(io, run + "/tokenizer.json"));
  STRATA_TRY_ASSIGN(model.texts, texts_beside(*model.tokenizer, loaded.config.model.seq, run, io));
  STRATA_TRY_ASSIGN(model.source_config, text_if_there(io, run + "/base/config.json"));
  const bool is_based = io.exists(run + "/base/tokenizer_config.json");
  model.token_ids = token_ids_of(model.tokenizer->markers(), is_based, objective_of(loaded.config).scores);
  STRATA_TRY_ASSIGN(model.chat_template, text_if_there(io, str(run, "/", kChatTemplateFile)));
  STRATA_TRY_ASSIGN(model.checkpoint, open_checkpoint(request, loaded, run, io, note));
  STRATA_TRY_ASSIGN(model.others, parts_of_run(request, loaded, run, format, note));
  model.from = model.checkpoint.path;
  model.decoder = decoder_config(loaded.config);
  STRATA_TRY_ASSIGN(model.source, whole_model_of(loaded, model.checkpoint.source(), format));
  return model;
}

Result<ExportedModel> model_of_folder(const ExportRequest& request, const LoadedConfig& loaded,
                                      const std::string& folder) {
  Io& io = posix_io();
  ExportedModel model;
  model.from = folder;
  STRATA_TRY_ASSIGN(model.tokenizer, Tokenizer::load(io, folder));
  STRATA_TRY_ASSIGN(model.texts, texts_of_folder(*model.tokenizer, folder, io));
  STRATA_TRY_ASSIGN(const TokenizerConfig words, load_tokenizer_config(io, folder));
  model.chat_template = words.chat_template;
  STRATA_TRY_ASSIGN(model.folder, PretrainedValues::open(io, loaded.config));
  model.source_config = model.folder->folder()->config_text();
  model.decoder = model.folder->folder()->config();
  const ParamSource parts = [values = model.folder.get()](std::string_view name,
                                                          std::span<float> into) -> Status {
    StatePiece piece;
    piece.name = name;
    piece.n_elems = std::ssize(into);
    STRATA_TRY_ASSIGN(const bool found, values->read(piece, into));
    return found ? Status::ok() : Status::error(Code::not_found, str("there is no parameter ", name));
  };
  STRATA_TRY_ASSIGN(model.source, whole_model_of(loaded, parts, request.format));
  if (request.format != "gguf" && !request.text_only) {
    STRATA_TRY_ASSIGN(model.others, digest_other_parts(io, folder));
  }
  return model;
}

}  // namespace strata::detail

#include <strata/infer/export_model.h>

#include <strata/model/adapter/adapter.h>
#include <strata/model/hf/explain_folder.h>
#include <strata/model/hf/model_files.h>
#include <strata/session/checkpoint.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/model/hf/folder.h>
#include <strata/text/tokenizer_reader.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/config/objective.h>
#include <strata/config/load_config.h>
#include <strata/plan/subspaces.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/config/run_layout.h>

#include "export/export_source.h"
#include "export/export_texts.h"

namespace strata {
namespace {

using namespace detail;
using Note = std::function<void(std::string_view)>;

Result<DType> dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == to_string(dtype)) return dtype;
  return Status::error(Code::invalid, str("--dtype ", name, " is not one of f32, bf16, f16"));
}

/// Writes the checkpoint `from` into `out` under the names that tensors have in a Hugging Face folder, for
/// trainers in Python.
Result<std::string> export_states(Io& io, const std::string& from, const DecoderConfig& decoder,
                                  const std::string& out) {
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, from));
  std::vector<Payload> payloads;
  for (const Payload payload : kCheckpointPayloads)
    if (io.exists(payload_file(from, payload))) payloads.push_back(payload);
  return write_checkpoint(
      io, out, manifest, payloads, [&](Payload payload, const std::string& path) -> Status {
        STRATA_TRY_ASSIGN(const auto tensors, CheckpointTensors::open(io, from, manifest, payload));
        const auto wanted = [&](std::string_view name) { return tensors->file().find(name) != nullptr; };
        const ParamSource source = [&](std::string_view name, std::span<float> into) {
          return tensors->read(name, into);
        };
        return export_hf_tensors(io, path, decoder, wanted, source);
      });
}

/// Whether the states of the optimizer are those of the parameters that are exported.
Status check_states(const TrainConfig& config, const DecoderConfig& decoder) {
  if (trained_part(config) == TrainedPart::adapters)
    return Status::error(Code::invalid, "--states: a merged model has no states of an optimizer");
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> subspaces, subspace_groups(config, decoder));
  if (subspaces.empty()) return {};
  return Status::error(Code::invalid,
                       "--states: the run trained matrices in subspaces of their gradients "
                       "(optim.name = galore), whose states are not those of whole matrices");
}

/// The format that was asked for, which must fit what the run trained. `auto`: an adapter as PEFT has it,
/// else a whole model.
Result<std::string> chosen_format(const ExportRequest& request, const TrainConfig& config) {
  const bool adapted = trained_part(config) == TrainedPart::adapters;
  if (adapted && objective_of(config).scores && (request.format == "auto" || request.format == "peft"))
    return Status::error(Code::unsupported,
                         str("--format ", request.format,
                             ": the run trained a score beside its adapter, which a folder "
                             "of PEFT would lack; use --format merged"));
  const std::string format = request.format == "auto" ? (adapted ? "peft" : "hf") : request.format;
  if (format == "gguf" || adapted == (format != "hf")) return format;
  return Status::error(
      Code::invalid,
      adapted
          ? str("--format ", format, ": the run trained an adapter; its formats are peft, merged and gguf")
          : str("--format ", format, ": the run trained a whole model; its formats are hf and gguf"));
}

Result<std::string> export_adapter(const ExportRequest& request, const LoadedConfig& loaded,
                                   const std::string& run, const Note& note) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const ExportedCheckpoint from, open_checkpoint(request, loaded, run, io, note));
  STRATA_TRY_ASSIGN(const AdapterSettings trained, adapter_settings(loaded.config));
  const DecoderConfig decoder = with_derived_sizes(decoder_config(loaded.config));
  const ParamSource source = folder_values(from.source(), decoder, trained);
  const AdapterSettings settings = folder_settings(trained);
  std::string base_config;  // --text-only: names are those of the text model's class
  if (const std::string path = run + "/base/config.json"; !request.text_only && io.exists(path)) {
    STRATA_TRY_ASSIGN(base_config, read_text(io, path, kExportTextLimit));
  }
  STRATA_TRY(
      export_peft(io, request.out_dir, decoder, settings, loaded.config.model.from, source, base_config));
  const bool of_peft = !std::holds_alternative<BottleneckSettings>(settings);
  std::string text = str("wrote ", request.out_dir, " from ", from.path, ": ", describe(settings),
                         of_peft ? " for PEFT\n" : ", which PEFT does not have\n");
  if (!request.check) return text;
  STRATA_TRY(check_peft_export(io, request.out_dir, decoder, source));
  return text + "checked: all tensors read back as they were written\n";
}

/// What an export says of other parts.
std::string copied(const OtherParts& parts, DType dtype) {
  std::string text = str("copied ", describe(parts), ", from ", parts.folder);
  if (const std::size_t n = parts.quantized_matrices(); n > 0)
    text += str("; ", n, n == 1 ? " quantized matrix" : " quantized matrices", " among them as ",
                to_string(dtype));
  return text + "\n";
}

Result<std::string> export_folder(const ExportRequest& request, const LoadedConfig& loaded,
                                  const ExportedModel& model) {
  Io& io = posix_io();
  HfExport options;
  STRATA_TRY_ASSIGN(options.dtype, dtype_of(request.dtype));
  STRATA_TRY_ASSIGN(options.shard_bytes, parse_bytes(request.max_shard_size));
  options.files = model.texts;
  options.source_config = model.source_config;
  options.token_ids = model.token_ids;
  options.others = model.others;
  if (request.states) STRATA_TRY(check_states(loaded.config, model.decoder));
  STRATA_TRY(export_hf(io, request.out_dir, model.decoder, model.source, options));
  std::string text =
      str("wrote ", request.out_dir, " from ", model.from, ": ", model.decoder.family, ", ",
          to_string(options.dtype),
          trained_part(loaded.config) == TrainedPart::adapters ? ", with the adapter merged\n" : "\n");
  if (model.others) text += copied(*model.others, options.dtype);
  STRATA_TRY_ASSIGN(const TokenizerConfig words, load_tokenizer_config(io, request.out_dir));
  const Status reader = check_tokenizer_reader(*model.tokenizer, model.decoder.family, words.tokenizer_class);
  if (!reader.is_ok() && request.check) return reader.annotate(request.out_dir);
  if (!reader.is_ok()) text += str("note: ", reader.message(), "\n");
  if (request.states) {
    STRATA_TRY_ASSIGN(const std::string states,
                      export_states(io, model.from, model.decoder, request.out_dir));
    text += str("wrote ", states, ", the f32 masters and the states of the optimizer\n");
  }
  if (!request.check) return text;
  STRATA_TRY(check_hf_export(io, request.out_dir, model.source, options.dtype, model.others));
  STRATA_TRY_ASSIGN(const Tokenizer written, Tokenizer::load(io, request.out_dir));
  if (written.digest() != model.tokenizer->digest())
    return Status::error(Code::corrupt, str(request.out_dir, ": the exported tokenizer has the digest ",
                                            to_hex(written.digest()), ", that of ", model.from, " has ",
                                            to_hex(model.tokenizer->digest())));
  return text + str("checked: all tensors read back as they were written, and the tokenizer equals the ",
                    model.folder ? "folder" : "run", "'s, also as transformers reads it\n");
}

Result<std::string> export_run(const ExportRequest& request, const LoadedConfig& loaded,
                               const std::string& run, const Note& note) {
  STRATA_TRY_ASSIGN(const std::string format, chosen_format(request, loaded.config));
  if (request.text_only && format == "gguf")
    return Status::error(
        Code::invalid, "--text-only: what --format gguf writes has no parts besides those of the text model");
  if (format == "peft") return export_adapter(request, loaded, run, note);
  STRATA_TRY_ASSIGN(const ExportedModel model, model_of_run(request, loaded, run, format, note));
  return format == "gguf" ? export_gguf_file(request, loaded, model, note)
                          : export_folder(request, loaded, model);
}

/// Options that need a run.
Status check_folder_options(const ExportRequest& request, const std::string& folder) {
  const auto refuse = [&](const char* option, const char* why) {
    return Status::error(Code::invalid, str(option, ": ", folder, " is a Hugging Face folder, ", why));
  };
  if (request.checkpoint != -1) return refuse("--checkpoint", "which has one state of its weights");
  if (request.ema) return refuse("--ema", "which has no average");
  if (request.states) return refuse("--states", "which has no states of an optimizer");
  if (request.format == "peft")
    return refuse("--format peft", "and an adapter of it is such a folder already");
  return {};
}

Result<std::string> export_model_of_folder(const ExportRequest& request, const std::string& folder,
                                           const Note& note) {
  STRATA_TRY(check_folder_options(request, folder));
  ExportRequest given = request;
  given.items.front() = "model.from=" + folder;
  given.use = ModelUse::inference;
  STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_config(given));
  if (request.format == "merged" && trained_part(loaded.config) != TrainedPart::adapters)
    return Status::error(Code::invalid, "--format merged: there is no adapter; name it with --adapter DIR");
  STRATA_TRY_ASSIGN(const ExportedModel model, model_of_folder(request, loaded, folder));
  return request.format == "gguf" ? export_gguf_file(request, loaded, model, note)
                                  : export_folder(request, loaded, model);
}

}  // namespace

Result<std::string> export_model(const ExportRequest& request, const Note& note) {
  Io& io = posix_io();
  const std::string run = request.items.front();
  if (request.out_dir.empty())
    return Status::error(Code::invalid, "name the folder or file to write: --out PATH");
  if (!is_run_folder(io, run) && model_file_exists(io, run + "/config.json"))
    return export_model_of_folder(request, run, note);
  if (!is_run_folder(io, run)) STRATA_TRY(explain_hf_folder(io, run));
  STRATA_TRY(check_is_run(io, run));
  if (!request.adapter.empty())
    return Status::error(Code::invalid, str("--adapter ", request.adapter, ": ", run,
                                            " is a run, whose adapters are those it trained"));
  ExportRequest given = request;
  given.items.front() = str(run, "/", kResolvedConfig);
  given.use = ModelUse::saved;
  if (io.exists(run + "/config.json"))
    note(str("note: ", run, " is a run and a Hugging Face folder; the run is read"));
  STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_config(given));
  return export_run(request, loaded, run, note);
}

}  // namespace strata

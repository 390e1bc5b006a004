#include <strata/session/checkpoint.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/model/hf/folder.h>
#include <strata/model/hf/tokenizer_reader.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/train/align/objective.h>
#include <strata/train/load_config.h>
#include <strata/train/run_folder.h>
#include <strata/train/subspaces/groups.h>
#include <strata/train/training_data.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/model/export_source.h"
#include "verbs/model/export_texts.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

Result<DType> dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == to_string(dtype)) return dtype;
  return Status::error(Code::invalid, str("--dtype ", name, " is not one of f32, bf16, f16"));
}

/// The config.json of the base; empty if the run has none.
Result<std::string> base_config(const std::string& run, Io& io) {
  const std::string path = run + "/base/config.json";
  if (!io.exists(path)) return std::string();
  return read_text(io, path, kExportTextLimit);
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
  if (has_adapters(config))
    return Status::error(Code::invalid, "--states: a merged model has no states of an optimizer");
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> subspaces, subspace_groups(config, decoder));
  if (subspaces.empty()) return {};
  return Status::error(Code::invalid,
                       "--states: the run trained matrices in subspaces of their gradients "
                       "(optim.name = galore), whose states are not those of whole matrices");
}

/// What the run trained, in the format that was asked for. `auto`: an adapter as PEFT has it, else a whole
/// model.
Result<std::string> chosen_format(const Args& args, const TrainConfig& config) {
  const bool adapted = has_adapters(config);
  if (adapted && is_reward_model(config) && (args.format == "auto" || args.format == "peft"))
    return Status::error(Code::unsupported,
                         str("--format ", args.format,
                             ": the run trained a score beside its adapter, which a folder "
                             "of PEFT would lack; use --format merged"));
  const std::string format = args.format == "auto" ? (adapted ? "peft" : "hf") : args.format;
  if (format == "gguf" || adapted == (format != "hf")) return format;
  return Status::error(
      Code::invalid,
      adapted
          ? str("--format ", format, ": the run trained an adapter; its formats are peft, merged and gguf")
          : str("--format ", format, ": the run trained a whole model; its formats are hf and gguf"));
}

Result<std::string> export_adapter(const Args& args, const LoadedConfig& loaded, const std::string& run) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const ExportedCheckpoint from, open_newest(args, loaded, run, io));
  STRATA_TRY_ASSIGN(const AdapterSettings trained, adapter_settings(loaded.config));
  const DecoderConfig decoder = with_derived_sizes(decoder_config(loaded.config));
  const ParamSource source = folder_values(from.source(), decoder, trained);
  const AdapterSettings settings = folder_settings(trained);
  STRATA_TRY(export_peft(io, args.out_dir, decoder, settings, loaded.config.model.from, source));
  const bool of_peft = !std::holds_alternative<BottleneckSettings>(settings);
  std::string text = str("wrote ", args.out_dir, " from ", from.path, ": ", describe(settings),
                         of_peft ? " for PEFT\n" : ", which PEFT does not have\n");
  if (!args.check) return text;
  STRATA_TRY(check_peft_export(io, args.out_dir, decoder, source));
  return text + "checked: all tensors read back as they were written\n";
}

Result<std::string> export_run(const Args& args, const LoadedConfig& loaded, const std::string& run) {
  STRATA_TRY_ASSIGN(const std::string format, chosen_format(args, loaded.config));
  if (format == "peft") return export_adapter(args, loaded, run);
  if (format == "gguf") return export_gguf_file(args, loaded, run);
  Io& io = posix_io();
  HfExport options;
  STRATA_TRY_ASSIGN(options.dtype, dtype_of(args.dtype));
  STRATA_TRY_ASSIGN(options.shard_bytes, parse_bytes(args.max_shard_size));
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, run + "/tokenizer.json"));
  STRATA_TRY_ASSIGN(options.files, texts_beside(tokenizer, loaded.config.model.seq, run, io));
  STRATA_TRY_ASSIGN(options.source_config, base_config(run, io));
  const bool is_based = io.exists(run + "/base/tokenizer_config.json");
  options.token_ids = token_ids_of(tokenizer.markers(), is_based, is_reward_model(loaded.config));
  STRATA_TRY_ASSIGN(const ExportedCheckpoint checkpoint, open_newest(args, loaded, run, io));
  const std::string& from = checkpoint.path;
  const DecoderConfig decoder = decoder_config(loaded.config);
  if (args.states) STRATA_TRY(check_states(loaded.config, decoder));
  STRATA_TRY_ASSIGN(const ParamSource source, whole_model_of(checkpoint, loaded, format));
  STRATA_TRY(export_hf(io, args.out_dir, decoder, source, options));
  std::string text =
      str("wrote ", args.out_dir, " from ", from, ": ", decoder.family, ", ", to_string(options.dtype), "\n");
  STRATA_TRY_ASSIGN(const TokenizerConfig words, load_tokenizer_config(io, args.out_dir));
  const Status reader = check_tokenizer_reader(tokenizer, decoder.family, words.tokenizer_class);
  if (!reader.is_ok() && args.check) return reader.annotate(args.out_dir);
  if (!reader.is_ok()) text += str("note: ", reader.message(), "\n");
  if (args.states) {
    STRATA_TRY_ASSIGN(const std::string states, export_states(io, from, decoder, args.out_dir));
    text += str("wrote ", states, ", the f32 masters and the states of the optimizer\n");
  }
  if (!args.check) return text;
  STRATA_TRY(check_hf_export(io, args.out_dir, source, options.dtype));
  STRATA_TRY_ASSIGN(const Tokenizer written, Tokenizer::load(io, args.out_dir));
  if (written.digest() != tokenizer.digest())
    return Status::error(
        Code::corrupt, str(args.out_dir, ": the exported tokenizer has the digest ", to_hex(written.digest()),
                           ", that of the run has ", to_hex(tokenizer.digest())));
  return text +
         "checked: all tensors read back as they were written, and the tokenizer equals the run's, also as "
         "transformers reads it\n";
}

}  // namespace

int run_export(const Args& args) {
  const auto refuse = [&](const Status& status) { return print_error(args, "export", status); };
  const std::string run = args.items.front();
  if (args.out_dir.empty())
    return refuse(Status::error(Code::invalid, "name the folder or file to write: --out PATH"));
  if (const Status there = RunFolder::check(posix_io(), run, RunFolder::Mode::resume); !there.is_ok())
    return refuse(there);
  Args given = args;
  given.items.front() = str(run, "/", kResolvedConfig);
  given.use = ModelUse::saved;
  if (posix_io().exists(run + "/config.json"))
    print(args.err,
          str("strata export: note: ", run, " is a run and a Hugging Face folder; the run is read\n"));
  auto loaded = load_config(given);
  if (!loaded.has_value()) return refuse(loaded.status());
  const auto text = export_run(args, *loaded, run);
  if (!text.has_value()) return refuse(text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli

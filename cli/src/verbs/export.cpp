#include <strata/engine/checkpoint.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/safetensors.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "exit_code.h"
#include "load_config.h"
#include "training/resume.h"
#include "training/run_folder.h"
#include "training/workload.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::uint64_t kTextLimit = 256 << 20;

Result<DType> dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == to_string(dtype)) return dtype;
  return Status::error(Code::invalid, str("--dtype ", name, "; f32, bf16 and f16 can be written"));
}

/// What goes beside the weights: the run's tokenizer, and what came with the folder the run began from.
Result<std::map<std::string, std::string>> files_beside(const LoadedConfig& loaded, const std::string& run,
                                                        Io& io) {
  std::map<std::string, std::string> files;
  const auto take = [&](const std::string& folder, const char* name) -> Status {
    if (!io.exists(folder + "/" + name)) return {};
    STRATA_TRY_ASSIGN(files[name], read_text(io, folder + "/" + name, kTextLimit));
    return {};
  };
  STRATA_TRY(take(run, "tokenizer.json"));
  STRATA_TRY(take(run, "chat_template.jinja"));
  if (const std::string& from = loaded.config.model.from; !from.empty())
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "generation_config.json", "chat_template.jinja", "vocab.json", "merges.txt"})
      STRATA_TRY(take(from, name));
  if (files.count("tokenizer_config.json") == 0)
    files["tokenizer_config.json"] =
        str("{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"eos_token\": \"",
            Tokenizer::kEndOfText, "\",\n  \"model_max_length\": ", loaded.config.model.seq, "\n}\n");
  return files;
}

Result<std::string> export_run(const Args& args, const LoadedConfig& loaded, const std::string& run) {
  Io& io = posix_io();
  HfExport options;
  STRATA_TRY_ASSIGN(options.dtype, dtype_of(args.dtype));
  STRATA_TRY_ASSIGN(options.shard_bytes, parse_bytes(args.shard));
  STRATA_TRY_ASSIGN(options.files, files_beside(loaded, run, io));
  if (const std::string& folder = loaded.config.model.from; !folder.empty()) {
    STRATA_TRY_ASSIGN(options.source_config, read_text(io, folder + "/config.json", kTextLimit));
  }
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints, checkpoints_of(loaded.config, run, io));
  if (checkpoints.empty())
    return Status::error(Code::not_found,
                         str(run, " holds no checkpoint yet in ", checkpoint_dir(loaded.config, run)));
  const std::string& from = checkpoints.front();
  STRATA_TRY_ASSIGN(const std::unique_ptr<SafetensorsFile> params, parameters_of(from, io));
  const ParamSource source = [&](std::string_view name, std::span<float> into) {
    return params->read(name, std::as_writable_bytes(into));
  };
  const DecoderConfig decoder = decoder_config(loaded.config);
  STRATA_TRY(export_hf(io, args.out_dir, decoder, source, options));
  std::string text =
      str("wrote ", args.out_dir, " from ", from, ": ", decoder.family, ", ", to_string(options.dtype), "\n");
  if (!args.check) return text;
  STRATA_TRY(check_hf_export(io, args.out_dir, source, options.dtype));
  return text + "checked: every tensor reads back as it was written\n";
}

}  // namespace

int run_export(const Args& args) {
  const auto refuse = [&](const Status& status) { return print_error(args, "export", status); };
  const std::string run = args.items.front();
  if (args.out_dir.empty())
    return refuse(Status::error(Code::invalid, "name the folder to write: --out DIR"));
  if (const Status there = RunFolder::check(posix_io(), run, RunFolder::Opening::resume); !there.is_ok())
    return refuse(there);
  Args given = args;
  given.items = {str(run, "/", kResolvedConfig)};
  auto loaded = load_config(given);
  if (!loaded.has_value()) return refuse(loaded.status());
  const auto text = export_run(args, *loaded, run);
  if (!text.has_value()) return refuse(text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli

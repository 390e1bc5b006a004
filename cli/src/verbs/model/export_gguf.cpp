#include <filesystem>

#include <strata/model/gguf/export.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/str.h>
#include <strata/train/training_data.h>

#include "print.h"
#include "verbs/model/export_source.h"

namespace strata::cli {
namespace {

Result<GgufExport> gguf_options(const Args& args, const std::string& run, Io& io) {
  GgufExport options;
  const auto format = gguf_format(args.dtype);
  if (!format.has_value()) return Status::error(Code::invalid, str("--dtype ", format.status().message()));
  options.format = *format;
  options.name = std::filesystem::path(args.out_dir).stem().string();
  if (const std::string path = run + "/chat_template.jinja"; io.exists(path)) {
    STRATA_TRY_ASSIGN(options.chat_template, read_text(io, path, kExportTextLimit));
  }
  return options;
}

}  // namespace

Result<std::string> export_gguf_file(const Args& args, const LoadedConfig& loaded, const std::string& run) {
  if (args.states)
    return Status::error(Code::invalid,
                         "--states: a GGUF file has no states of an optimizer; --format hf writes them");
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(GgufExport options, gguf_options(args, run, io));
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, run + "/tokenizer.json"));
  options.end = tokenizer.markers().learned_end();
  STRATA_TRY_ASSIGN(const ExportedCheckpoint checkpoint, open_newest(args, loaded, run, io));
  STRATA_TRY_ASSIGN(const ParamSource source, whole_model_of(checkpoint, loaded, "gguf"));
  const DecoderConfig decoder = decoder_config(loaded.config);
  STRATA_TRY_ASSIGN(const std::vector<std::string> notes,
                    export_gguf(io, args.out_dir, decoder, tokenizer, source, options));
  for (const std::string& note : notes) print(args.err, str("strata export: note: ", note, "\n"));
  const std::string text =
      str("wrote ", args.out_dir, " from ", checkpoint.path, ": ", decoder.family, ", ",
          to_string(options.format), has_adapters(loaded.config) ? ", with the adapter merged\n" : "\n");
  if (!args.check) return text;
  STRATA_TRY(check_gguf_export(io, args.out_dir, decoder, tokenizer, source, options));
  return text + "checked: every byte reads back as it was written\n";
}

}  // namespace strata::cli

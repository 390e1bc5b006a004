#include <filesystem>

#include <strata/config/load_config.h>
#include <strata/model/gguf/export.h>
#include <strata/runtime/str.h>
#include <strata/config/train_config.h>

#include "export/export_source.h"

namespace strata::detail {

Result<std::string> export_gguf_file(const ExportRequest& request, const LoadedConfig& loaded,
                                     const ExportedModel& model,
                                     const std::function<void(std::string_view)>& note) {
  if (request.states)
    return Status::error(Code::invalid,
                         "--states: a GGUF file has no states of an optimizer; --format hf writes them");
  Io& io = posix_io();
  const auto mix = gguf_mix(request.dtype);
  if (!mix.has_value()) return Status::error(Code::invalid, str("--dtype ", mix.status().message()));
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(loaded.config.cpu.share));
  const GgufExport options{.format = *mix,
                           .name = std::filesystem::path(request.out_dir).stem().string(),
                           .end = model.tokenizer->markers().learned_end(),
                           .chat_template = model.chat_template,
                           .pool = pool.get()};
  STRATA_TRY_ASSIGN(const std::vector<std::string> notes,
                    export_gguf(io, request.out_dir, model.decoder, *model.tokenizer, model.source, options));
  for (const std::string& each : notes) note(str("note: ", each));
  const std::string text =
      str("wrote ", request.out_dir, " from ", model.from, ": ", model.decoder.family, ", ",
          to_string(options.format),
          trained_part(loaded.config) == TrainedPart::adapters ? ", with the adapter merged\n" : "\n");
  if (!request.check) return text;
  STRATA_TRY(check_gguf_export(io, request.out_dir, model.decoder, *model.tokenizer, model.source, options));
  return text + "checked: every byte reads back as it was written\n";
}

}  // namespace strata::detail

#include "verbs/model/export_source.h"

#include <strata/runtime/str.h>
#include <strata/train/pretrained/whole_model.h>
#include <strata/train/resume.h>

#include "print.h"

namespace strata::cli {

Result<ExportedCheckpoint> open_newest(const Args& args, const LoadedConfig& loaded, const std::string& run,
                                       Io& io) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints,
                    list_checkpoints(loaded.config, run, io, [&](std::string_view text) {
                      print(args.err, str("strata export: ", text, "\n"));
                    }));
  if (checkpoints.empty()) return no_checkpoint(loaded.config, run);
  ExportedCheckpoint newest{checkpoints.front(), nullptr};
  STRATA_TRY_ASSIGN(newest.params,
                    CheckpointParams::open(loaded.config, newest.path, io,
                                           args.ema ? TrainedValues::average : TrainedValues::newest));
  return newest;
}

Result<ParamSource> whole_model_of(const ExportedCheckpoint& checkpoint, const LoadedConfig& loaded,
                                   std::string_view format) {
  auto source = whole_model(loaded.config, checkpoint.source());
  if (!source.has_value()) return source.status().annotate(str("--format ", format));
  return source;
}

}  // namespace strata::cli

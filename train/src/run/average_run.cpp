#include <strata/train/tools/average_run.h>

#include <map>

#include <strata/config/load_config.h>
#include <strata/text/text_markers.h>
#include <strata/runtime/str.h>
#include <strata/session/average_checkpoints.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>

#include <strata/config/run_paths.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>

namespace strata {
namespace {

// The files that make a run independent of the folders that it was started from.
Result<std::map<std::string, std::string>> kept_files(Io& io, const std::string& run) {
  constexpr std::uint64_t kLimit = std::uint64_t{256} << 20;
  std::map<std::string, std::string> files;
  std::vector<std::string> names = {"tokenizer.json", kChatTemplateFile, kTextMarkersFile, kOtherPartsFile};
  for (const char* name : kBaseFiles) names.push_back(str("base/", name));
  for (const std::string& name : names)
    if (const std::string path = str(run, "/", name); io.exists(path)) {
      STRATA_TRY_ASSIGN(files[name], read_text(io, path, kLimit));
    }
  return files;
}

}  // namespace

Result<std::string> average_run(Io& io, const std::string& run, const LoadedConfig& loaded,
                                std::span<const std::string> checkpoints, const std::string& out) {
  STRATA_TRY_ASSIGN(const auto files, kept_files(io, run));
  STRATA_TRY_ASSIGN(const auto folder, RunFolder::open(io, out, RunFolder::Mode::fresh));
  const std::string dir = checkpoint_dir(loaded.config, out);
  auto made = average_checkpoints(io, checkpoints, dir);
  if (!made.has_value()) {
    (void)io.remove_empty_dir(dir);  // so that the folder can go, too
    return made.status();
  }
  STRATA_TRY(folder->begin(0, run_config_toml(io, loaded.tree, out), files));
  return made;
}

}  // namespace strata

#include "training/resume.h"

#include <strata/runtime/str.h>

namespace strata::cli {

std::string checkpoint_dir(const TrainConfig& config, const std::string& path) {
  return config.checkpoint.dir.empty() ? path + "/checkpoints" : config.checkpoint.dir;
}

Result<std::vector<std::string>> checkpoints_of(const TrainConfig& config, const std::string& path, Io& io) {
  const std::string dir = checkpoint_dir(config, path);
  if (!io.exists(dir)) return std::vector<std::string>();
  auto whole = whole_checkpoints(io, dir);
  if (!whole.has_value() && whole.status().code() == Code::not_found) return std::vector<std::string>();
  return whole;
}

Result<std::string> load_newest(Engine& engine, const std::vector<std::string>& checkpoints, Io& io,
                                const std::function<void(std::string_view)>& warn) {
  for (const std::string& checkpoint : checkpoints) {
    const Status status = load_checkpoint(engine, io, checkpoint).status();
    if (status.is_ok()) return checkpoint;
    if (status.code() != Code::corrupt || checkpoint == checkpoints.back()) return status;
    warn(str(status.message(), "\n  going back to the one before"));
  }
  return Status::error(Code::not_found, "no checkpoint to load");
}

}  // namespace strata::cli

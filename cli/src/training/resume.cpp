#include "training/resume.h"

#include <algorithm>

#include <strata/runtime/digest.h>
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

Result<std::string> checkpoint_of_step(const std::vector<std::string>& checkpoints, std::int64_t step,
                                       Io& io) {
  std::string steps;
  for (const std::string& checkpoint : checkpoints) {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
    if (manifest.step == step) return checkpoint;
    steps = str(manifest.step, steps.empty() ? "" : ", ", steps);
  }
  return Status::error(Code::not_found, str("no checkpoint of step ", step, "; there are ", steps));
}

Result<std::unique_ptr<SafetensorsFile>> parameters_of(const std::string& checkpoint, Io& io) {
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  const std::string name = "param.safetensors", path = checkpoint + "/" + name;
  const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                 [&](const CheckpointFile& f) { return f.name == name; });
  if (file == manifest.files.end()) return Status::error(Code::corrupt, str(path, " is not in the manifest"));
  STRATA_TRY_ASSIGN(const FileDigest found, digest_file(io, path));
  if (file->digest != to_hex(found.digest))
    return Status::error(Code::corrupt, str(path, ": its digest is ", to_hex(found.digest),
                                            ", the manifest says ", file->digest));
  return SafetensorsFile::open(io, path);
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

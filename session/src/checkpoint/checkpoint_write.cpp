#include <strata/session/checkpoint.h>

#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_names.h"
#include "checkpoint/task_state.h"

namespace strata {

namespace {

Status write_files(Io& io, const std::string& folder, Manifest& manifest, std::span<const Payload> payloads,
                   const WritePayloadFile& write, const TaskState& task) {
  STRATA_TRY(io.make_dirs(folder));
  manifest.version = manifest.needed_version();
  manifest.files.clear();
  for (const Payload payload : payloads) {
    STRATA_TRY(write(payload, payload_file(folder, payload)));
    STRATA_TRY_ASSIGN(CheckpointFile file, detail::describe_file(io, folder, detail::file_of(payload)));
    manifest.files.push_back(std::move(file));
  }
  STRATA_TRY_ASSIGN(auto of_task, detail::write_task_state(io, folder, task));
  if (of_task) manifest.files.push_back(*std::move(of_task));
  return write_text_atomically(io, folder + "/" + std::string(detail::kManifestName), to_json(manifest));
}

}  // namespace

Result<std::string> write_checkpoint(Io& io, const std::string& dir, Manifest manifest,
                                     std::span<const Payload> payloads, const WritePayloadFile& write,
                                     const TaskState& task) {
  const std::string folder = dir + "/" + detail::folder_name(manifest.step);
  if (io.exists(folder)) return Status::error(Code::invalid, str(folder, " already exists"));
  Status status = write_files(io, folder, manifest, payloads, write, task);
  if (status.is_ok()) status = io.sync_dir(dir);
  if (status.is_ok()) return folder;
  (void)io.remove_all(folder);  // return the first error
  return status;
}

Status check_digests(Io& io, const std::string& folder, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    STRATA_TRY_ASSIGN(const CheckpointFile found, detail::describe_file(io, folder, file.name));
    if (found.digest != file.digest)
      return Status::error(Code::corrupt, str(folder, "/", file.name, " is damaged: its digest is ",
                                              found.digest, ", the manifest says ", file.digest));
  }
  return {};
}

std::string payload_file(const std::string& folder, Payload payload) {
  return folder + "/" + detail::file_of(payload);
}

}  // namespace strata

#include <strata/session/checkpoint.h>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_names.h"

namespace strata {
namespace {

using detail::StepFolder;

Result<CheckpointFile> write_payload(Session& session, Io& io, const std::string& folder, Payload payload) {
  CheckpointFile file;
  file.name = detail::file_of(payload);
  STRATA_TRY_ASSIGN(const auto writer,
                    SafetensorsWriter::create(io, folder + "/" + file.name,
                                              detail::specs_in_layout_order(session.state_plan(), payload),
                                              {{"payload", std::string(to_string(payload))}}));
  Digester tensor;
  STRATA_TRY(session.visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
    if (piece.offset == 0) tensor = Digester();
    tensor.update(std::as_bytes(values));
    if (piece.offset + std::ssize(values) == piece.n_elems)
      file.tensors.emplace(piece.name, to_hex(tensor.digest()));
    return writer->append(std::as_bytes(values));
  }));
  STRATA_TRY(writer->finish());
  file.bytes = writer->file_bytes();
  file.digest = writer->digest_hex();
  return file;
}

Status write_folder(Session& session, Io& io, const std::string& folder,
                    std::map<std::string, std::string> run) {
  STRATA_TRY(io.make_dirs(folder));
  Manifest manifest;
  manifest.step = session.steps();
  manifest.loss_scale = session.loss_scale();
  manifest.run = std::move(run);
  for (const Payload payload : session.state_plan().states()) {
    STRATA_TRY_ASSIGN(CheckpointFile file, write_payload(session, io, folder, payload));
    manifest.files.push_back(std::move(file));
  }
  return write_text_atomically(io, folder + "/" + std::string(detail::kManifestName),
                               to_json(manifest));  // also syncs the folder
}

// Removes the oldest checkpoints beyond `keep`, but never the one just `saved`.
Status remove_oldest(Io& io, const std::string& dir, int keep, const std::string& saved) {
  if (keep <= 0) return Status::ok();
  STRATA_TRY_ASSIGN(const std::vector<StepFolder> found, detail::step_folders(io, dir));
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < found.size(); ++i)
    if (found[i].path != saved) STRATA_TRY(io.remove_all(found[i].path));
  return Status::ok();
}

bool has_digests(Io& io, const std::string& folder, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    const auto found = digest_file(io, folder + "/" + file.name);
    if (!found.has_value() || to_hex(found->digest) != file.digest) return false;
  }
  return true;
}

// Moves the draft to the target's place. A complete checkpoint of the same step remains visible throughout,
// unless its bits differ: then it is moved aside, and back if the draft cannot take its place.
Status publish(Io& io, const std::string& draft, const std::string& target) {
  if (!io.exists(target)) return io.rename(draft, target);
  STRATA_TRY_ASSIGN(const Manifest fresh, read_manifest(io, draft));
  const Result<Manifest> old = read_manifest(io, target);
  if (old.has_value() && old->step == fresh.step && old->files == fresh.files &&
      has_digests(io, target, *old)) {
    STRATA_TRY(write_text_atomically(io, target + "/" + std::string(detail::kManifestName), to_json(fresh)));
    (void)io.remove_all(draft);  // if this fails, the next save removes it
    return Status::ok();
  }
  const std::string aside = draft + ".replaced";
  STRATA_TRY(io.rename(target, aside));
  Status status = io.rename(draft, target);
  if (!status.is_ok()) {
    (void)io.rename(aside, target);
    return status;
  }
  (void)io.remove_all(aside);
  return Status::ok();
}

}  // namespace

Result<std::string> save_checkpoint(Session& session, Io& io, const std::string& dir,
                                    std::map<std::string, std::string> run, int keep) {
  const std::string name = detail::folder_name(session.steps());
  const std::string target = dir + "/" + name, draft = dir + "/" + detail::draft_name(name);
  const auto attempt = [&]() -> Status {
    STRATA_TRY(io.make_dirs(dir));
    STRATA_TRY(clear_drafts(io, dir));
    STRATA_TRY(write_folder(session, io, draft, std::move(run)));
    STRATA_TRY(publish(io, draft, target));
    return io.sync_dir(dir);
  };
  Status status = attempt();
  if (!status.is_ok()) {
    (void)io.remove_all(draft);
    return std::move(status).annotate(str("saving checkpoint ", target));
  }
  STRATA_TRY(remove_oldest(io, dir, keep, target)
                 .annotate(str("checkpoint ", target, " is saved; removing older ones")));
  return target;
}

}  // namespace strata

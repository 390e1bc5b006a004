#include <strata/session/checkpoint_folders.h>

#include <strata/runtime/str.h>
#include <strata/session/manifest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_names.h"

namespace strata {

Status clear_drafts(Io& io, const std::string& dir) {
  if (!io.exists(dir)) return {};
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  for (const std::string& name : names) {
    const auto draft = detail::draft_of(name);
    if (!draft) continue;
    const std::string path = dir + "/" + name, target = dir + "/" + draft->folder;
    if (draft->replaced && !io.exists(target))
      STRATA_TRY(io.rename(path, target));
    else
      STRATA_TRY(io.remove_all(path));
  }
  return {};
}

Status remove_checkpoints(Io& io, const std::string& dir) {
  if (!io.exists(dir)) return {};
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  std::size_t left = names.size();
  for (const std::string& name : names) {
    if (!detail::step_of(name) && !detail::draft_of(name)) continue;
    STRATA_TRY(io.remove_all(dir + "/" + name));
    --left;
  }
  return left == 0 ? io.remove_all(dir) : Status::ok();
}

Result<std::string> newest_checkpoint(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(std::vector<std::string> whole, complete_checkpoints(io, dir));
  return std::move(whole.front());
}

namespace {

// Checks the manifest completely, and that its files exist with the right sizes.
Status check_complete(Io& io, CheckpointInfo& checkpoint) {
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint.path));
  for (const CheckpointFile& file : manifest.files) checkpoint.bytes += file.bytes;
  return detail::check_files(io, checkpoint.path, manifest);
}

Result<std::vector<CheckpointInfo>> examine(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(const std::vector<detail::StepFolder> folders, detail::step_folders(io, dir));
  std::vector<CheckpointInfo> found;
  for (const detail::StepFolder& folder : folders) {
    found.push_back({.step = folder.step, .path = folder.path, .status = {}});
    found.back().status = check_complete(io, found.back());
  }
  return found;
}

}  // namespace

Result<std::vector<CheckpointInfo>> describe_checkpoints(Io& io, const std::string& dir) {
  if (!io.exists(dir)) return std::vector<CheckpointInfo>();
  return examine(io, dir);
}

std::vector<CheckpointInfo> checkpoints_to_prune(std::span<const CheckpointInfo> found, int keep,
                                                 std::int64_t every) {
  std::vector<CheckpointInfo> pruned;
  int whole = 0;
  for (std::size_t i = found.size(); i-- > 0;) {
    const CheckpointInfo& checkpoint = found[i];
    const bool is_whole = checkpoint.status.is_ok();
    const bool is_kept = is_whole ? whole < keep || (every > 0 && checkpoint.step % every == 0) : whole == 0;
    if (is_whole) ++whole;
    if (!is_kept) pruned.insert(pruned.begin(), checkpoint);
  }
  return pruned;
}

Status remove_checkpoint(Io& io, const CheckpointInfo& checkpoint) {
  const std::size_t slash = checkpoint.path.rfind('/');
  const std::string draft =
      str(checkpoint.path.substr(0, slash + 1), detail::draft_name(checkpoint.path.substr(slash + 1)));
  STRATA_TRY(io.rename(checkpoint.path, draft));
  return io.remove_all(draft);
}

Result<std::vector<std::string>> complete_checkpoints(Io& io, const std::string& dir,
                                                      const CheckpointWarning& warn) {
  auto found = examine(io, dir);
  if (!found.has_value())
    return Status::error(Code::not_found, str("no checkpoint in ", dir, ": ", found.status().message()));
  std::string looked_at;
  std::vector<std::string> whole, passed_over;
  for (auto at = found->rbegin(); at != found->rend(); ++at) {
    if (!at->status.is_ok()) {
      looked_at += str("\n  ", at->path, ": ", at->status.message());
      if (whole.empty()) passed_over.push_back(str(at->path, " is damaged: ", at->status.message()));
    } else {
      whole.push_back(at->path);
    }
  }
  if (!whole.empty()) {
    for (const std::string& damaged : passed_over)
      if (warn) warn(str(damaged, "; using ", whole.front()));
    return whole;
  }
  return Status::error(looked_at.empty() ? Code::not_found : Code::corrupt,
                       str("no complete checkpoint in ", dir, looked_at));
}

}  // namespace strata

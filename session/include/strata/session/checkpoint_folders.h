#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/io.h>

namespace strata {

/// Removes what interrupted saves left in `dir`, and restores a complete checkpoint that one of them had
/// moved aside. Touches no other name. Does nothing if there is no `dir`. The caller holds the lock.
Status clear_drafts(Io& io, const std::string& dir);
/// Removes all checkpoints and drafts of `dir`, and `dir` itself if nothing else is left in it.
Status remove_checkpoints(Io& io, const std::string& dir);

/// A folder of `dir` that has the name of a checkpoint.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::string path;
  std::uint64_t bytes = 0;  ///< the size of its files, as the manifest states it
  Status status;            ///< ok if the manifest is valid and the files have the right sizes
};
/// All of `dir`, the oldest first; none if there is no `dir`. Errors: `io_error`.
Result<std::vector<CheckpointInfo>> describe_checkpoints(Io& io, const std::string& dir);
/// Which of `found`, the oldest first, are not among the newest `keep` that are whole and are not of a step
/// that `every` divides (0: of any). A damaged one is among them if a whole one is newer.
std::vector<CheckpointInfo> checkpoints_to_prune(std::span<const CheckpointInfo> found, int keep,
                                                 std::int64_t every);
/// Removes a checkpoint. It has no checkpoint's name any more before its first file goes, and if this is
/// interrupted, clear_drafts() removes the rest. The caller holds the lock.
Status remove_checkpoint(Io& io, const CheckpointInfo& checkpoint);

/// Returns the newest folder of `dir`, by step and never by time, whose manifest is valid and whose files
/// have the right sizes. Errors: `not_found` if there is no checkpoint at all, `corrupt` naming each folder
/// that was examined and what is wrong with it.
Result<std::string> newest_checkpoint(Io& io, const std::string& dir);
/// Is called for each damaged checkpoint that is skipped, with the reason.
using CheckpointWarning = std::function<void(std::string_view text)>;
/// Returns all such folders, newest first. `warn` is called for each damaged folder that is newer than the
/// first of them. load_checkpoint checks more than this and may still refuse one.
Result<std::vector<std::string>> complete_checkpoints(Io& io, const std::string& dir,
                                                      const CheckpointWarning& warn = {});

}  // namespace strata

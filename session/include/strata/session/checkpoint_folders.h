#pragma once

#include <functional>
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

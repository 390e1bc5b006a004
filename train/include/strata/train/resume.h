#pragma once

#include <memory>
#include <string>

#include <strata/train/folder_lock.h>

namespace strata {

/// Locks the folder `dir`, which is checkpoint.dir of the run in `path`; the caller holds the lock while the
/// run uses the folder. Returns null if it is empty: the run keeps its checkpoints in its own folder. Errors:
/// `invalid` if another run uses that folder or contains it.
Result<std::unique_ptr<FolderLock>> lock_checkpoint_dir(const std::string& dir, const std::string& path,
                                                        Io& io);

}  // namespace strata

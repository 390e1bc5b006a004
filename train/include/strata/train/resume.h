#pragma once

#include <memory>
#include <string>

#include <strata/config/train_config.h>
#include <strata/train/folder_lock.h>

namespace strata {

/// Locks the folder of checkpoint.dir; the caller holds the lock while the run uses the folder. Returns null
/// if the run keeps its checkpoints in its own folder. Errors: `invalid` if another run uses that folder or
/// contains it.
Result<std::unique_ptr<FolderLock>> lock_checkpoint_dir(const TrainConfig& config, const std::string& path,
                                                        Io& io);

}  // namespace strata

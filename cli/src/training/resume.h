#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/checkpoint.h>

#include "train_config.h"
#include "training/folder_lock.h"

namespace strata::cli {

/// Where the run in `path` keeps its checkpoints.
std::string checkpoint_dir(const TrainConfig& config, const std::string& path);

/// The run's checkpoints, newest first; none where it has not saved yet. Errors: `corrupt` where there are
/// some and all are damaged: going on from nothing then would throw work away unasked.
Result<std::vector<std::string>> list_checkpoints(const TrainConfig& config, const std::string& path, Io& io);

/// The checkpoint of that step. Errors: `not_found`, naming the steps there are.
Result<std::string> find_checkpoint(const std::vector<std::string>& checkpoints, std::int64_t step, Io& io);
/// A checkpoint's parameters. Errors: those of CheckpointTensors::open and of read_manifest.
Result<std::unique_ptr<CheckpointTensors>> open_checkpoint_parameters(const std::string& checkpoint, Io& io);

/// Locks the folder that checkpoint.dir names, for as long as the run uses it; nothing where the run keeps
/// its checkpoints in its own. Errors: `invalid` where another run uses it, or has it in its folder.
Result<std::unique_ptr<FolderLock>> lock_checkpoint_dir(const TrainConfig& config, const std::string& path,
                                                        Io& io);

/// Loads the newest of `checkpoints` that is whole to its last byte, and tells `warn` of those that are not.
/// Errors: those of load_checkpoint; `corrupt` where none is whole.
Result<std::string> load_newest_checkpoint(Engine& engine, const std::vector<std::string>& checkpoints,
                                           Io& io, const std::function<void(std::string_view)>& warn);

}  // namespace strata::cli

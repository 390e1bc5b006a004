#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/session/checkpoint.h>
#include <strata/train/folder_lock.h>
#include <strata/train/train_config.h>

namespace strata {

/// The checkpoint directory of the run in `path`.
std::string checkpoint_dir(const TrainConfig& config, const std::string& path);

/// The run's checkpoints, newest first; none if it has not saved yet. Errors: `corrupt` if there are some and
/// all are damaged, because starting over would discard work without asking. `warn` hears of damaged ones
/// that are newer than the first.
Result<std::vector<std::string>> list_checkpoints(const TrainConfig& config, const std::string& path, Io& io,
                                                  const CheckpointWarning& warn);

/// The error `not_found` of a command that needs a checkpoint of a run without any, with what to do.
Status no_checkpoint(const TrainConfig& config, const std::string& path);

/// The checkpoint of `step`. Errors: `not_found`, with the steps that exist.
Result<std::string> find_checkpoint(const std::vector<std::string>& checkpoints, std::int64_t step, Io& io);

/// The checkpoint of the step with the lowest validation loss in the metrics of the run in `path`. `warn`
/// hears of a lower loss whose checkpoint is not kept. Errors: `not_found` if no checkpoint has a validation,
/// with the steps of both.
Result<std::string> best_checkpoint(const std::vector<std::string>& checkpoints, const std::string& path,
                                    Io& io, const CheckpointWarning& warn);

/// Locks the folder of checkpoint.dir; the caller holds the lock while the run uses the folder. Returns null
/// if the run keeps its checkpoints in its own folder. Errors: `invalid` if another run uses that folder or
/// contains it.
Result<std::unique_ptr<FolderLock>> lock_checkpoint_dir(const TrainConfig& config, const std::string& path,
                                                        Io& io);

/// Loads a checkpoint of a run. The parameters that it leaves out are read from the folder model.from. With
/// several ranks, all of them call it. Errors: those of load_checkpoint() and open_frozen_source().
Result<Manifest> load_run_checkpoint(Engine& engine, const TrainConfig& config, const std::string& checkpoint,
                                     Io& io);
/// Loads the newest of `checkpoints` that is intact and returns its path. `also`, unless it is empty, loads
/// what the run needs besides its states. `warn` is called for each damaged one. With several ranks, all of
/// them call it. Errors: those of load_run_checkpoint() and of `also`; `corrupt` if none is intact.
Result<std::string> load_newest_checkpoint(
    Engine& engine, const TrainConfig& config, const std::vector<std::string>& checkpoints, Io& io,
    const std::function<void(std::string_view)>& warn,
    const std::function<Status(const std::string& checkpoint)>& also = {});

}  // namespace strata

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/config/checkpoint_choice.h>
#include <strata/runtime/io/io.h>
#include <strata/session/checkpoint.h>

namespace strata {

struct TrainConfig;

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

/// That checkpoint of the run in `path`. Errors: those of the functions above.
Result<std::string> choose_checkpoint(const TrainConfig& config, const std::string& path, std::int64_t asked,
                                      Io& io, const CheckpointWarning& warn);

}  // namespace strata

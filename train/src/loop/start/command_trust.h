#pragma once

#include <string>

#include <strata/runtime/status.h>
#include <strata/train/observer.h>

// A configuration can carry commands of the shell, which a run starts: log.command and align.reward.

namespace strata {

struct LoadedConfig;
struct TrainConfig;

/// Checks that a run that is resumed from `run` starts no command that another user wrote there. Errors:
/// `invalid` for a command from the run's configuration if the folder or that file belongs to another user;
/// it may be given again.
Status check_commands(const LoadedConfig& loaded, const std::string& run);

/// Tells the user which commands the run will start, before it does.
void name_commands(const TrainConfig& config, Observer& observer);

}  // namespace strata

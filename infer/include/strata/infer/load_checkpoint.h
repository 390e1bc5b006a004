#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/session/checkpoint.h>

namespace strata {

struct TrainConfig;

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

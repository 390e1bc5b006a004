#pragma once

#include <strata/engine/engine.h>
#include <strata/runtime/io/io.h>

namespace strata {

struct TrainConfig;

/// Sets the states of a new run: parameters from the folder of model.from, or random ones, and moments of
/// zero; or, with model.states, masters, moments and steps of a checkpoint that a trainer in Python has saved
/// under the names of that folder. Errors: `not_found`, `corrupt`, `unsupported`, naming the key, and those
/// of the folder.
Status set_initial_states(Engine& engine, const TrainConfig& config, Io& io);

}  // namespace strata

#pragma once

#include <strata/runtime/config/config.h>

namespace strata {

/// The keys and presets of a training run. `config show`, the checks and the help all use this table.
const ConfigSchema& train_schema() noexcept;

}  // namespace strata

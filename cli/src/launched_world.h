#pragma once

#include <memory>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

#include "args.h"

namespace strata::cli {

/// The ranks that a launcher started with this one; null if it is alone. Errors: `unsupported` for a launcher
/// whose transport is missing.
Result<std::unique_ptr<World>> open_launched_world(const Args& args);

}  // namespace strata::cli

#pragma once

#include <functional>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// Runs `work` in a thread for each of `ranks` ranks that share a model, and waits for all. `finish` is
/// called before their worlds end, also after an error: what `work` has kept that needs them ends there.
/// Errors: the first of a rank; that another rank has gone only if nothing else failed.
Status run_on_ranks(
    int ranks, const std::function<Status(World& world)>& work, const std::function<void()>& finish = [] {});

}  // namespace strata

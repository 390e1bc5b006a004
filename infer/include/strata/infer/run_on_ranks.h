#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// Runs `work` in a thread for each of `ranks` ranks that share a model, waits for all, and returns their
/// worlds, which what `work` made of them may still need. Errors: the first of a rank; that another rank has
/// gone only if nothing else failed.
Result<std::vector<std::unique_ptr<World>>> run_on_ranks(int ranks,
                                                         const std::function<Status(World& world)>& work);

}  // namespace strata

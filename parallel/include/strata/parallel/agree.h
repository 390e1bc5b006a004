#pragma once

#include <string>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// Ok if all ranks are; otherwise the error of the first rank, by number, that has one, which the other ranks
/// prefix with its number. Every rank calls it. `world` may be null: then there is one rank. Errors: also
/// those of World::all_gather().
Status agree(World* world, const Status& mine);

/// Returns the text of rank 0, or its error, which the other ranks prefix, if it has one. Every rank calls
/// it; only the argument of rank 0 matters. `world` may be null.
Result<std::string> from_first_rank(World* world, const Result<std::string>& mine);

}  // namespace strata

#pragma once

#include <span>
#include <string>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// Something that must be the same on all ranks, as text.
struct RankFacet {
  std::string name;  ///< "layout of chunks"
  std::vector<std::string> lines;
};

/// Compares digests first, and searches for the first line that differs only if some do. Every rank calls it,
/// with as many facets. Errors: `invalid`, the same on all ranks, with the first facet that differs, the
/// first rank in which it differs from rank 0, and the first line that differs, of both; those of
/// World::all_gather().
Status compare_ranks(World& world, std::span<const RankFacet> facets);

/// Which build of strata this is: an identifier that the linker has computed from it; empty if it has not.
std::string build_id();

}  // namespace strata

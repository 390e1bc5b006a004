#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// Something that must be the same on all ranks, or on those of a group, as text.
struct RankFacet {
  std::string name;  ///< "layout of chunks"
  std::vector<std::string> lines;
  std::int32_t group = 0;  ///< the group of this rank; ranks of different groups need not have the same lines
};

/// Compares digests first, and searches for the first line that differs only if some do. Every rank calls it,
/// with as many facets. Errors: `invalid`, the same on all ranks, with the first facet that differs, the
/// first rank in which it differs from the first rank of its group, and the first line that differs, of both;
/// those of World::all_gather().
Status compare_ranks(World& world, std::span<const RankFacet> facets);

/// Which build of strata this is: an identifier that the linker has computed from it; empty if it has not.
std::string build_id();

}  // namespace strata

#include <strata/parallel/compare_ranks.h>

#include <algorithm>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// Of the first `n` lines, or of all if there are fewer.
std::string digest_of_first(const RankFacet& facet, std::size_t n) {
  Digester digester;
  digester.update(facet.name);
  for (std::size_t i = 0; i < std::min(n, facet.lines.size()); ++i)
    digester.update(str('\n', facet.lines[i]));
  digester.update(str('\n', std::min(n, facet.lines.size())));
  return to_hex(digester.digest());
}

// The first rank whose text is not that of rank 0; -1 if there is none.
int first_other(const std::vector<std::string>& texts) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0]) return static_cast<int>(rank);
  return -1;
}

// Every rank takes part in every round, and finds the same. `lines`: of the longest of all ranks.
Status describe_difference(World& world, const RankFacet& facet, std::size_t rank, std::size_t lines) {
  std::size_t equal = 0, different = lines;  // numbers of lines from the beginning
  while (different - equal > 1) {
    const std::size_t middle = equal + (different - equal) / 2;
    STRATA_TRY_ASSIGN(const auto digests, world.all_gather(digest_of_first(facet, middle)));
    (digests[rank] == digests[0] ? equal : different) = middle;
  }
  STRATA_TRY_ASSIGN(const auto texts, world.all_gather(equal < facet.lines.size() ? facet.lines[equal]
                                                                                  : std::string("nothing")));
  STRATA_TRY_ASSIGN(const auto places, world.all_gather(world.description()));
  return Status::error(
      Code::invalid, str("ranks do not have the same ", facet.name, ": line ", equal + 1, " is \"", texts[0],
                         "\" on ", places[0], " and \"", texts[rank], "\" on ", places[rank]));
}

}  // namespace

Status compare_ranks(World& world, std::span<const RankFacet> facets) {
  std::string digests;
  for (const RankFacet& facet : facets) digests += digest_of_first(facet, facet.lines.size());
  STRATA_TRY_ASSIGN(const auto all, world.all_gather(digests));
  if (first_other(all) < 0) return {};
  for (const RankFacet& facet : facets) {
    STRATA_TRY_ASSIGN(const auto texts, world.all_gather(digest_of_first(facet, facet.lines.size())));
    const int rank = first_other(texts);
    if (rank < 0) continue;
    STRATA_TRY_ASSIGN(const auto counts, world.all_gather(std::to_string(facet.lines.size())));
    std::size_t lines = 0;
    for (const std::string& count : counts) lines = std::max(lines, std::size_t{std::stoul(count)});
    return describe_difference(world, facet, static_cast<std::size_t>(rank), std::max<std::size_t>(lines, 1));
  }
  return Status::error(Code::invalid, "ranks do not compare the same things; do all run the same strata?");
}

}  // namespace strata

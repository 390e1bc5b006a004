#include <strata/parallel/compare_ranks.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// The digest of the first `n` lines, or of all if there are fewer.
std::string digest_of_first(const RankFacet& facet, std::size_t n) {
  Digester digester;
  digester.update(facet.name);
  for (std::size_t i = 0; i < std::min(n, facet.lines.size()); ++i)
    digester.update(str('\n', facet.lines[i]));
  digester.update(str('\n', std::min(n, facet.lines.size())));
  return to_hex(digester.digest());
}

/// A rank's values of a facet.
struct Compared {
  std::string group, digest;
};
std::string to_text(std::span<const RankFacet> facets) {
  std::string text;
  for (const RankFacet& facet : facets)
    text += str(facet.group, ' ', digest_of_first(facet, facet.lines.size()), '\n');
  return text;
}
std::vector<Compared> from_text(const std::string& text) {
  std::vector<Compared> all;
  std::istringstream in(text);
  for (Compared each; in >> each.group >> each.digest;) all.push_back(each);
  return all;
}

struct Difference {
  std::size_t first, other;  // the first rank of a group, and the first one that differs from it
};
std::optional<Difference> find_difference(const std::vector<std::vector<Compared>>& all, std::size_t facet) {
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const Compared& own = all[rank][facet];
    const auto first = std::find_if(all.begin(), all.end(), [&](const std::vector<Compared>& other) {
      return other[facet].group == own.group;
    });
    if ((*first)[facet].digest != own.digest)
      return Difference{static_cast<std::size_t>(first - all.begin()), rank};
  }
  return std::nullopt;
}

// Every rank takes part in every round, and finds the same. `lines`: of the longest of all ranks.
Status describe(const Difference& found, World& world, const RankFacet& facet, std::size_t lines) {
  std::size_t equal = 0, different = lines;  // numbers of lines from the beginning
  while (different - equal > 1) {
    const std::size_t middle = equal + (different - equal) / 2;
    STRATA_TRY_ASSIGN(const auto digests, world.all_gather(digest_of_first(facet, middle)));
    (digests[found.other] == digests[found.first] ? equal : different) = middle;
  }
  STRATA_TRY_ASSIGN(const auto texts, world.all_gather(equal < facet.lines.size() ? facet.lines[equal]
                                                                                  : std::string("nothing")));
  STRATA_TRY_ASSIGN(const auto places, world.all_gather(world.description()));
  return Status::error(Code::invalid, str("ranks do not have the same ", facet.name, ": line ", equal + 1,
                                          " is \"", texts[found.first], "\" on ", places[found.first],
                                          " and \"", texts[found.other], "\" on ", places[found.other]));
}

}  // namespace

Status compare_ranks(World& world, std::span<const RankFacet> facets) {
  STRATA_TRY_ASSIGN(const auto texts, world.all_gather(to_text(facets)));
  std::vector<std::vector<Compared>> all;
  for (const std::string& text : texts) all.push_back(from_text(text));
  for (const std::vector<Compared>& each : all)
    if (each.size() != all.front().size())
      return Status::error(Code::invalid,
                           "ranks do not compare the same things; do all run the same strata?");
  for (std::size_t i = 0; i < facets.size(); ++i) {
    const RankFacet& facet = facets[i];
    const std::optional<Difference> found = find_difference(all, i);
    if (!found) continue;
    STRATA_TRY_ASSIGN(const auto counts, world.all_gather(std::to_string(facet.lines.size())));
    std::size_t lines = 0;
    for (const std::string& count : counts) lines = std::max(lines, std::size_t{std::stoul(count)});
    return describe(*found, world, facet, std::max<std::size_t>(lines, 1));
  }
  return {};
}

}  // namespace strata

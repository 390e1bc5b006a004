#include <strata/chunk/placement.h>

#include <strata/runtime/assert.h>

namespace strata {

std::vector<SizeClass> slot_classes(const ChunkLayout& layout) {
  std::vector<SizeClass> classes;
  for (const std::size_t bytes : layout.payload_sizes()) classes.push_back({bytes, {}});
  return classes;
}

std::uint32_t Placement::class_of(const ChunkLayout& layout, PayloadKey key) const {
  const std::uint32_t at = layout.size_class(key.chunk, key.payload);
  STRATA_ASSERT(at < classes.size() && classes[at].slot_bytes == layout.payload_bytes(key.chunk, key.payload),
                "chunk ", key.chunk, " has no slot class of ", layout.payload_bytes(key.chunk, key.payload),
                " bytes");
  return at;
}

std::vector<std::uint32_t> Placement::home_counts(const ChunkLayout& layout, Tier tier) const {
  std::vector<std::uint32_t> counts(classes.size(), 0);
  for (ChunkId c = 0; c < homes.size(); ++c)
    for (std::size_t p = 0; p < kPayloads; ++p)
      if (homes[c][p] == tier) ++counts[class_of(layout, {c, static_cast<Payload>(p)})];
  return counts;
}

std::size_t Placement::bytes(const ChunkLayout& layout, Tier tier) const {
  const std::vector<std::uint32_t> counts = home_counts(layout, tier);
  std::size_t total = 0;
  for (std::size_t c = 0; c < classes.size(); ++c)
    total += classes[c].slot_bytes * (counts[c] + classes[c].window[static_cast<std::size_t>(tier)] +
                                      (tier == Tier::nvme ? classes[c].snapshots : 0));
  return total;
}

}  // namespace strata

#include <strata/chunk/placement.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "describe.h"

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
  STRATA_ASSERT(classes.size() == layout.payload_sizes().size(), "a layout of ",
                layout.payload_sizes().size(), " sizes has ", classes.size(), " slot classes");
  for (ChunkId c = 0; c < homes.size(); ++c)
    for (std::size_t p = 0; p < kPayloads; ++p)
      if (homes[c][p] == tier && layout.has(c, static_cast<Payload>(p)))
        ++counts[layout.size_class(c, static_cast<Payload>(p))];
  return counts;
}

std::size_t Placement::bytes(const ChunkLayout& layout, Tier tier) const {
  const std::vector<std::uint32_t> counts = home_counts(layout, tier);
  std::size_t total = 0;
  for (std::size_t c = 0; c < classes.size(); ++c)
    total += classes[c].slot_bytes * (counts[c] + classes[c].window[index_of(tier)] +
                                      (tier == Tier::nvme ? classes[c].snapshots : 0));
  return total;
}

Status Placement::check(const ChunkLayout& layout) const {
  if (homes.size() != layout.n_chunks())
    return Status::error(Code::invalid, str("the placement has homes for ", homes.size(),
                                            " chunks, but the layout has ", layout.n_chunks()));
  for (std::size_t i = 0; i < homes.size() * kPayloads; ++i)
    if (const PayloadKey key = key_at(i); home(key) && !layout.has(key.chunk, key.payload))
      return Status::error(Code::invalid, str(detail::describe(key), " has no bytes but has a home in ",
                                              to_string(*home(key))));
  if (!device_windows.empty() && device_windows.size() != classes.size())
    return Status::error(Code::invalid, str("the placement has device windows for ", device_windows.size(),
                                            " classes, but there are ", classes.size()));
  const std::vector<std::uint32_t> on_device = home_counts(layout, Tier::device);
  for (std::uint32_t c = 0; c < device_windows.size(); ++c)
    if (const std::uint32_t w = device_windows[c];
        w >= classes.size() || w < c || device_windows[w] != w || (w != c && on_device[c] > 0))
      return Status::error(Code::invalid,
                           str("payloads of ", classes[c].slot_bytes, " bytes, of which ", on_device[c],
                               " have their home on the device, cannot pass through the window of class ", w,
                               " of ", classes.size()));
  const std::vector<std::uint32_t> on_nvme = home_counts(layout, Tier::nvme);
  for (std::size_t c = 0; c < classes.size(); ++c)
    if (on_nvme[c] > 0 && classes[c].window[index_of(Tier::nvme)] == 0)
      return Status::error(Code::invalid, str(on_nvme[c], " payloads of ", classes[c].slot_bytes,
                                              " bytes have their home on nvme, which has no spare slot"));
  return Status::ok();
}

}  // namespace strata

#include <strata/offload/placement_request.h>

#include <cstddef>

#include "planner/placement_windows.h"

namespace strata {

TierBytes placement_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement) {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t)
    bytes[t] = detail::tier_bytes(layout, trace, placement, static_cast<Tier>(t));
  return bytes;
}

std::uint64_t detail::tier_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p,
                                 Tier tier) {
  const std::uint64_t fixed = tier == Tier::device   ? trace.device_fixed_bytes
                              : tier == Tier::pinned ? trace.pinned_fixed_bytes
                                                     : trace.nvme_fixed_bytes;
  return p.bytes(layout, tier) + fixed;
}

}  // namespace strata

#include <strata/offload/placement_request.h>

#include <cstddef>

#include "planner/placement_windows.h"

namespace strata {

using detail::kDevice;
using detail::kNvme;
using detail::kPinned;

TierBytes placement_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement) {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t) bytes[t] = placement.bytes(layout, static_cast<Tier>(t));
  bytes[kDevice] += trace.device_fixed_bytes;
  bytes[kPinned] += trace.pinned_fixed_bytes;
  bytes[kNvme] += trace.nvme_fixed_bytes;
  return bytes;
}

}  // namespace strata

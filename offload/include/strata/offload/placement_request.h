#pragma once

#include <array>
#include <cstdint>

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>

namespace strata {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

/// Bytes a run may use of each tier, by Tier. An nvme budget of 0 means that there is no NVMe tier.
using TierBytes = std::array<std::uint64_t, kTiers>;

/// Which tier the planner fills with homes first. `automatic` fills the fastest tier; the other values name
/// the tier that holds most of the model, so that any placement can be requested.
enum class PlacementPolicy : std::uint8_t { automatic, device, pinned, nvme };

/// Where accumulated gradients are kept until the update. `automatic`: on the device as far as memory remains
/// there; `device`: all of them on the device, so that RAM holds only optimizer states; `pinned`: off the
/// device, except for chunks that are entirely on it.
enum class GradientPolicy : std::uint8_t { automatic, device, pinned };

struct PlacementRequest {
  TierBytes budgets{kUnlimited, kUnlimited, kUnlimited};
  PlacementPolicy policy = PlacementPolicy::automatic;
  std::uint32_t prefetch = 2;  ///< chunks prefetched; widens windows beyond the minimum by this if they fit
  GradientPolicy gradients = GradientPolicy::automatic;
  TierBytes capacity{kUnlimited, kUnlimited,
                     kUnlimited};  ///< memory of the machine; suggested budgets stay within it if possible
};

/// Bytes the placement uses of each tier, including the fixed bytes of the trace.
TierBytes placement_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement);

}  // namespace strata

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>
#include <strata/runtime/status.h>

namespace strata {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

/// Bytes a run may use of each tier, by Tier. 0 for nvme: there is none.
using TierBytes = std::array<std::uint64_t, kTiers>;

/// Which tier homes go to first. `automatic` fills the fastest; the others say where the bulk shall live, so
/// that every placement can be asked for by name.
enum class PlacementPolicy : std::uint8_t { automatic, device, pinned, nvme };

/// Where the step's gradients are until the update. `automatic`: where most of the device's room is left;
/// `device`: all of them there, so that RAM holds nothing but states; `pinned`: off the device but for chunks
/// that are whole there.
enum class GradientPolicy : std::uint8_t { automatic, device, pinned };

struct PlacementRequest {
  TierBytes budgets{kUnlimited, kUnlimited, kUnlimited};
  PlacementPolicy policy = PlacementPolicy::automatic;
  std::uint32_t prefetch = 2;  ///< chunks ahead; windows are this much wider than the least where room allows
  GradientPolicy gradients = GradientPolicy::automatic;
  TierBytes capacity{kUnlimited, kUnlimited,
                     kUnlimited};  ///< what the machine has; a refusal proposes more of no tier
};

/// Bytes the placement takes of each tier, fixed parts included.
TierBytes placement_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement);

/// Homes and windows for a run, or `does_not_fit` with a table: what each tier needs at least, what it has,
/// and the smallest budget that fits. Deterministic.
///
/// A chunk's parameter, master and moments live on the device together or not at all, and with its gradient's
/// sum (the step runs where they are); a sum may live there alone, since every micro-batch adds to it. Off
/// the device each payload has a home of its own, parameters and sums in the faster tier first because they
/// move more often than moments. Among the placements that fit, the one that moves least in a step.
Result<Placement> plan_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                 const PlacementRequest& request);
/// The same for who asks many times: nothing where it does not fit.
std::optional<Placement> find_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                        const PlacementRequest& request);
/// The `does_not_fit` of plan_placement, with a suggestion of the caller's; one above `request.capacity` is
/// said to be more than there is.
Status placement_error(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                       const TierBytes& suggestion);

/// The least windows a placement with these homes can run with; fills `placement.classes[].window`.
void set_minimum_windows(const ChunkLayout& layout, const AccessTrace& trace, Placement& placement);

/// The smallest budgets, starting from `request.budgets` and enlarging as few tiers as possible, that fit.
TierBytes minimum_budgets(const ChunkLayout& layout, const AccessTrace& trace,
                          const PlacementRequest& request);
/// The same for any judge of budgets, such as one that lays the model out anew for each: `fits` holds for the
/// answer, and for no answer with one raised tier smaller by a page, or by 1/4096 of what it is raised by.
/// `budgets` themselves where nothing fits in which no tier is raised above `capacity`.
TierBytes minimum_budgets(const TierBytes& budgets, bool may_grow_nvme,
                          const std::function<bool(const TierBytes&)>& fits,
                          const TierBytes& capacity = {kUnlimited, kUnlimited, kUnlimited});
/// The smallest of what the machine has (`request.capacity`), or the smallest at all where nothing of that
/// fits.
TierBytes suggest_budgets(const PlacementRequest& request, const std::function<bool(const TierBytes&)>& fits);
/// Whether a suggestion may enlarge nvme: a budget of 0 says that there is none, unless the policy asks for
/// it.
bool may_grow_nvme(const PlacementRequest& request);

}  // namespace strata

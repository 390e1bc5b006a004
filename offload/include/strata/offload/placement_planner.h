#pragma once

#include <functional>
#include <optional>

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>
#include <strata/offload/placement_request.h>
#include <strata/runtime/status.h>

namespace strata {

/// Computes homes and windows for a run, or returns `does_not_fit` with a table of what each tier needs, its
/// budget, and the smallest budgets that fit. Deterministic.
///
/// A chunk's parameter, master, moments and accumulated gradient are either all on the device, where the
/// optimizer step then runs, or all off it, with one exception: the accumulated gradient may be on the device
/// alone, since every micro-batch adds to it. Off the device each payload has its own home; parameters and
/// accumulated gradients get the faster tier first because they move more often than moments. Of all
/// placements that fit, the planner returns the one that moves the fewest bytes in a step.
Result<Placement> plan_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                 const PlacementRequest& request);
/// plan_placement() for callers that try many requests: returns nullopt, without a message, if nothing fits.
std::optional<Placement> find_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                        const PlacementRequest& request);
/// Tells of many requests for one layout whether find_placement() finds any: what does not depend on the
/// request is computed once, and no placement is compared with others.
class PlacementTest {
 public:
  /// `layout` outlives the object.
  PlacementTest(const ChunkLayout& layout, const AccessTrace& trace);
  bool fits(const PlacementRequest& request) const;

 private:
  const ChunkLayout& layout_;
  AccessTrace trace_;  // without dominated accesses
};
/// The `does_not_fit` error of plan_placement() with the caller's suggestion. If that exceeds
/// `request.capacity`, the message says that the machine does not have it.
Status placement_error(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                       const TierBytes& suggestion);

/// Sets `placement.classes[].window` to the minimum with which a placement with these homes can run.
void set_minimum_windows(const ChunkLayout& layout, const AccessTrace& trace, Placement& placement);

/// Returns the smallest budgets that fit, starting from `request.budgets` and raising as few tiers as
/// possible.
TierBytes minimum_budgets(const ChunkLayout& layout, const AccessTrace& trace,
                          const PlacementRequest& request);
/// The same for any predicate `fits`, such as one that computes a new chunk layout for each budget. `fits` is
/// true for the result, and false if any raised tier is smaller by one page or by 1/4096 of its increase.
/// Returns `budgets` unchanged if nothing fits without raising a tier above `capacity`.
TierBytes minimum_budgets(const TierBytes& budgets, bool may_grow_nvme,
                          const std::function<bool(const TierBytes&)>& fits,
                          const TierBytes& capacity = {kUnlimited, kUnlimited, kUnlimited});
/// The smallest budgets within the memory of the machine (`request.capacity`), or without that limit if none
/// of those fit.
TierBytes suggest_budgets(const PlacementRequest& request, const std::function<bool(const TierBytes&)>& fits);
/// Whether a suggestion may raise the nvme budget. A budget of 0 means that there is no NVMe tier, unless the
/// policy requests it.
bool may_grow_nvme(const PlacementRequest& request);

}  // namespace strata

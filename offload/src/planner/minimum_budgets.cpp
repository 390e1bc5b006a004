#include <algorithm>
#include <optional>

#include <strata/offload/placement_planner.h>
#include <strata/runtime/units.h>

#include "planner/placement_windows.h"

namespace strata {

using detail::kDevice;
using detail::kNvme;
using detail::kPinned;

namespace {

using FitsPredicate = std::function<bool(const TierBytes&)>;

// Returns `budgets`, which does not fit, with `tier` raised to the minimum that fits, exact to a page or to
// 1/4096 of the increase. The chunk layout may depend on the budget, so a larger budget may not fit although
// a smaller one does; the result is then one of the points where fitting changes.
std::optional<TierBytes> raise_tier(TierBytes budgets, std::size_t tier, const FitsPredicate& fits,
                                    const TierBytes& capacity) {
  constexpr std::uint64_t kAlmostUnlimited = std::uint64_t{1} << 40;  // in pages
  constexpr std::uint64_t kFine = 4096;
  const std::uint64_t capacity_pages = std::min(kAlmostUnlimited, capacity[tier] / kPageBytes);
  const std::uint64_t budgets_pages = budgets[tier] / kPageBytes;
  std::uint64_t low = budgets_pages;
  if (low >= capacity_pages) return std::nullopt;  // unlimited, or already at capacity
  const auto fits_with = [&](std::uint64_t pages) {
    budgets[tier] = pages * kPageBytes;
    return fits(budgets);
  };
  if (!fits_with(capacity_pages)) return std::nullopt;
  std::uint64_t stride = 1;
  while (low + stride < capacity_pages && !fits_with(low + stride)) {
    low += stride;
    stride *= 2;
  }
  std::uint64_t high = std::min(low + stride, capacity_pages);
  const std::uint64_t close = std::max<std::uint64_t>(1, (high - budgets_pages) / kFine);
  while (low + close < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits_with(middle) ? high : low) = middle;
  }
  budgets[tier] = high * kPageBytes;
  return budgets;
}

}  // namespace

TierBytes minimum_budgets(const TierBytes& asked, bool may_grow_nvme, const FitsPredicate& fits,
                          const TierBytes& capacity) {
  // If raising one tier alone is enough, raise the one that needs the smallest increase. Otherwise raise each
  // tier to the minimum with which a run can work when the others are plentiful, and then further, the
  // slowest tier first, until the run fits.
  std::optional<TierBytes> best;
  std::uint64_t best_extra = 0;
  for (const std::size_t tier : {kNvme, kPinned, kDevice}) {
    if (tier == kNvme && !may_grow_nvme) continue;
    const std::optional<TierBytes> one = raise_tier(asked, tier, fits, capacity);
    if (!one || (best && (*one)[tier] - asked[tier] >= best_extra)) continue;
    best = one;
    best_extra = (*one)[tier] - asked[tier];
  }
  if (best) return *best;
  TierBytes budgets = asked;
  for (std::size_t t = 0; t < kTiers; ++t) {
    TierBytes generous;
    for (std::size_t other = 0; other < kTiers; ++other)
      generous[other] = other == kNvme && !may_grow_nvme
                            ? 0
                            : std::max(asked[other], std::min(kUnlimited / 2, capacity[other]));
    generous[t] = budgets[t];
    if (fits(generous)) continue;
    if (const std::optional<TierBytes> one = raise_tier(generous, t, fits, capacity)) budgets[t] = (*one)[t];
  }
  for (const std::size_t tier : {kNvme, kPinned, kDevice})
    if ((tier != kNvme || may_grow_nvme) && !fits(budgets))
      if (const std::optional<TierBytes> one = raise_tier(budgets, tier, fits, capacity)) budgets = *one;
  // The tier raised last may have freed bytes of one that was raised earlier.
  for (std::size_t t = 0; t < kTiers; ++t) {
    TierBytes less = budgets;
    less[t] = asked[t];
    if (budgets[t] == asked[t]) continue;
    if (fits(less)) {
      budgets = less;
    } else if (const std::optional<TierBytes> one = raise_tier(less, t, fits, capacity);
               one && (*one)[t] < budgets[t]) {
      budgets = *one;
    }
  }
  return fits(budgets) ? budgets : asked;
}

bool may_grow_nvme(const PlacementRequest& request) {
  return request.budgets[kNvme] > 0 || request.policy == PlacementPolicy::nvme;
}

TierBytes suggest_budgets(const PlacementRequest& request, const FitsPredicate& fits) {
  const bool grows = may_grow_nvme(request);
  const TierBytes found = minimum_budgets(request.budgets, grows, fits, request.capacity);
  return found != request.budgets ? found : minimum_budgets(request.budgets, grows, fits);
}

TierBytes minimum_budgets(const ChunkLayout& layout, const AccessTrace& trace,
                          const PlacementRequest& request) {
  const FitsPredicate fits = [&](const TierBytes& budgets) {
    PlacementRequest r = request;
    r.budgets = budgets;
    return find_placement(layout, trace, r).has_value();
  };
  return suggest_budgets(request, fits);
}

}  // namespace strata

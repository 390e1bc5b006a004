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

/// The budgets that were asked for, and how far each may be raised.
struct BudgetGrowth {
  const TierBytes& asked;
  bool may_grow_nvme;
  const FitsPredicate& fits;
  const TierBytes& capacity;

  bool may_grow(std::size_t tier) const { return tier != kNvme || may_grow_nvme; }
  std::optional<TierBytes> raise(const TierBytes& budgets, std::size_t tier) const {
    return raise_tier(budgets, tier, fits, capacity);
  }
};

/// Raises the one tier that alone makes the run fit with the smallest increase; nothing if no tier does.
std::optional<TierBytes> raise_one_tier(const BudgetGrowth& growth) {
  std::optional<TierBytes> best;
  std::uint64_t best_extra = 0;
  for (const std::size_t tier : {kNvme, kPinned, kDevice}) {
    if (!growth.may_grow(tier)) continue;
    const std::optional<TierBytes> one = growth.raise(growth.asked, tier);
    if (!one || (best && (*one)[tier] - growth.asked[tier] >= best_extra)) continue;
    best = one;
    best_extra = (*one)[tier] - growth.asked[tier];
  }
  return best;
}

/// Raises each tier to the minimum with which a run can work when the others are plentiful, and then further,
/// the slowest tier first, until the run fits.
TierBytes raise_all_tiers(const BudgetGrowth& growth) {
  TierBytes budgets = growth.asked;
  for (std::size_t t = 0; t < kTiers; ++t) {
    TierBytes generous;
    for (std::size_t other = 0; other < kTiers; ++other)
      generous[other] = growth.may_grow(other)
                            ? std::max(growth.asked[other], std::min(kUnlimited / 2, growth.capacity[other]))
                            : 0;
    generous[t] = budgets[t];
    if (growth.fits(generous)) continue;
    if (const std::optional<TierBytes> one = growth.raise(generous, t)) budgets[t] = (*one)[t];
  }
  for (const std::size_t tier : {kNvme, kPinned, kDevice})
    if (growth.may_grow(tier) && !growth.fits(budgets))
      if (const std::optional<TierBytes> one = growth.raise(budgets, tier)) budgets = *one;
  return budgets;
}

/// Lowers again what the tier raised last has freed of one that was raised earlier.
TierBytes lower_tiers(TierBytes budgets, const BudgetGrowth& growth) {
  for (std::size_t t = 0; t < kTiers; ++t) {
    TierBytes less = budgets;
    less[t] = growth.asked[t];
    if (budgets[t] == growth.asked[t]) continue;
    if (growth.fits(less)) {
      budgets = less;
    } else if (const std::optional<TierBytes> one = growth.raise(less, t); one && (*one)[t] < budgets[t]) {
      budgets = *one;
    }
  }
  return budgets;
}

}  // namespace

TierBytes minimum_budgets(const TierBytes& asked, bool may_grow_nvme, const FitsPredicate& fits,
                          const TierBytes& capacity) {
  const BudgetGrowth growth{asked, may_grow_nvme, fits, capacity};
  if (const std::optional<TierBytes> one = raise_one_tier(growth)) return *one;
  const TierBytes budgets = lower_tiers(raise_all_tiers(growth), growth);
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
  const PlacementTest test(layout, trace);
  const FitsPredicate fits = [&](const TierBytes& budgets) {
    PlacementRequest r = request;
    r.budgets = budgets;
    return test.fits(r);
  };
  return suggest_budgets(request, fits);
}

}  // namespace strata

#include <algorithm>
#include <optional>

#include <strata/offload/placement_planner.h>

#include "placement_windows.h"

namespace strata {

using detail::kDevice;
using detail::kNvme;
using detail::kPinned;

namespace {

using FitsPredicate = std::function<bool(const TierBytes&)>;

// `budgets`, which does not fit, with `tier` as large as it takes, to a page, or to a four-thousandth of what
// it is raised by. A layout may depend on the budget, so that a larger one need not fit where a smaller does:
// what is found is a place where so much makes the difference.
std::optional<TierBytes> raise_tier(TierBytes budgets, std::size_t tier, const FitsPredicate& fits,
                                    const TierBytes& capacity) {
  constexpr std::uint64_t kPage = 4096, kAlmostUnlimited = std::uint64_t{1} << 40;
  constexpr std::uint64_t kFine = 4096;
  const std::uint64_t capacity_pages = std::min(kAlmostUnlimited, capacity[tier] / kPage);
  const std::uint64_t budgets_pages = budgets[tier] / kPage;
  std::uint64_t low = budgets_pages;
  if (low >= capacity_pages) return std::nullopt;  // unlimited, or all there is
  const auto fits_with = [&](std::uint64_t pages) {
    budgets[tier] = pages * kPage;
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
  budgets[tier] = high * kPage;
  return budgets;
}

}  // namespace

TierBytes minimum_budgets(const TierBytes& asked, bool may_grow_nvme, const FitsPredicate& fits,
                          const TierBytes& capacity) {
  // Enlarge one tier alone where that is enough, the one that needs least; else the device and pinned memory
  // to the least they can run with, and the rest where there is most room.
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
  // The last tier enlarged may have made room that an earlier one no longer needs.
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

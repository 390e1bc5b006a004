#include <strata/offload/placement_planner.h>

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "placement_windows.h"

namespace strata {
namespace {

using detail::Counts;
using detail::homed;
using detail::kDevice;
using detail::kept_params;
using detail::kNvme;
using detail::kPinned;
using detail::passing_params;
using detail::set_windows;
using detail::Width;

void set_home(const ChunkLayout& layout, Placement& p, CopyKey key, Tier tier) {
  if (layout.has(key.chunk, key.payload)) p.homes[key.chunk][static_cast<std::size_t>(key.payload)] = tier;
}

bool within(const TierBytes& need, const TierBytes& budgets) {
  for (std::size_t t = 0; t < kTiers; ++t)
    if (need[t] > budgets[t]) return false;
  return true;
}

Placement empty_placement(const ChunkLayout& layout) {
  Placement p;
  p.classes = slot_classes(layout);
  p.homes.resize(layout.n_chunks());
  return p;
}

// What a placement moves in a step, in seconds of a machine whose link carries 20 GB/s, whose disk 2 and
// whose RAM 60: only the order of the answers matters. Times a payload crosses: a parameter for each use, a
// sum for each micro-batch; the CPU's update reads and writes all states.
double step_cost(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  constexpr double kLink = 20e9, kDisk = 2e9, kRam = 60e9,
                   kUsesInPass = 3;  // forward, recomputation, backward
  const double passes = trace.micro_batches;
  Counts kept = kept_params(layout, trace, p);
  double cost = 0;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    if (p.home({chunk, Payload::param}) == Tier::device) continue;
    const auto bytes = [&](Payload payload) {
      return static_cast<double>(layout.payload_bytes(chunk, payload));
    };
    const auto disk = [&](Payload payload) {
      return p.home({chunk, payload}) == Tier::nvme ? bytes(payload) / kDisk : 0.0;
    };
    std::uint32_t& left = kept[p.class_of(layout, {chunk, Payload::param})];
    const double uploads = left > 0 ? 1 : kUsesInPass * passes;
    if (left > 0) --left;
    const bool updated = layout.group_of(chunk).trainable;
    cost += disk(Payload::param) * (uploads + (updated ? 2 : 0)) + uploads * bytes(Payload::param) / kLink;
    if (!updated) continue;
    cost += disk(Payload::accum) * 2 * passes;
    cost += (p.home({chunk, Payload::accum}) == Tier::device ? 1 : passes) * bytes(Payload::accum) / kLink;
    cost += 2 * (disk(Payload::master) + disk(Payload::m) + disk(Payload::v));
    if (!trace.trains) continue;
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v})
      cost += 2 * bytes(payload) / kRam;
  }
  return cost;
}

// Off the device: parameters, then sums, then what only the commit reads chunk by chunk take pinned memory
// while there is room (window included, so it is set anew for each try), the rest nvme. Homes already given
// stay.
bool place_off_device(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                      const Width& width, Placement& p) {
  std::vector<CopyKey> order;
  const auto add = [&](CopyKey key) {
    if (p.home(key) != Tier::device && layout.has(key.chunk, key.payload)) order.push_back(key);
  };
  for (const Payload payload : homed(trace).first(trace.trains ? 2 : 1))
    for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) add({chunk, payload});
  for (ChunkId chunk = 0; trace.trains && chunk < layout.n_chunks(); ++chunk)
    if (layout.group_of(chunk).trainable)
      for (const Payload payload : homed(trace).subspan(2)) add({chunk, payload});
  for (ChunkId chunk = 0; trace.trains && chunk < layout.n_chunks(); ++chunk)  // what no step touches
    if (!layout.group_of(chunk).trainable) add({chunk, Payload::master});
  const bool has_nvme = request.budgets[kNvme] > 0;
  // The number of pinned homes is found by bisection: fewer homes there never need more of it.
  const auto try_pinned = [&](std::size_t n_pinned) {
    for (std::size_t i = 0; i < order.size(); ++i)
      p.homes[order[i].chunk][static_cast<std::size_t>(order[i].payload)] =
          i < n_pinned ? Tier::pinned : Tier::nvme;
    set_windows(layout, trace, width, p);
    return placement_bytes(layout, trace, p)[kPinned] <= request.budgets[kPinned];
  };
  std::size_t low = 0, high = request.policy == PlacementPolicy::nvme ? 0 : order.size();
  if (high > 0 && !try_pinned(high)) {
    if (!has_nvme || !try_pinned(0)) return false;
    while (low + 1 < high) {
      const std::size_t middle = (low + high) / 2;
      (try_pinned(middle) ? low : high) = middle;
    }
    high = low;
  }
  return try_pinned(high) && within(placement_bytes(layout, trace, p), request.budgets);
}

// What is left of the device holds sums: they are touched in every micro-batch, and only once leave for the
// step. Whether all of them found room.
bool place_sums_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                          const PlacementRequest& request, ChunkId first, const Width& width, Placement& p) {
  for (ChunkId chunk = first; chunk < layout.n_chunks(); ++chunk) {
    if (!layout.group_of(chunk).trainable) continue;
    auto& home = p.homes[chunk][static_cast<std::size_t>(Payload::accum)];
    home = Tier::device;
    set_windows(layout, trace, width, p);
    if (placement_bytes(layout, trace, p)[kDevice] <= request.budgets[kDevice]) continue;
    home.reset();
    return false;
  }
  return true;
}

bool may_place_sums(const PlacementRequest& request) {
  return request.gradients == GradientPolicy::device ||
         (request.gradients == GradientPolicy::automatic && request.policy == PlacementPolicy::automatic);
}

// What is still left of it keeps parameters that have no home there, so that a step brings them up once.
void keep_params_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                           const PlacementRequest& request, Placement& p) {
  const std::uint64_t used = placement_bytes(layout, trace, p)[kDevice];
  std::uint64_t left = request.budgets[kDevice] - std::min(used, request.budgets[kDevice]);
  const Counts passing = passing_params(layout, p), kept = kept_params(layout, trace, p);
  for (std::size_t c = 0; c < p.classes.size(); ++c) {
    const std::uint64_t more = std::min<std::uint64_t>(passing[c] - kept[c], left / p.classes[c].slot_bytes);
    p.classes[c].window[kDevice] += static_cast<std::uint32_t>(more);
    left -= more * p.classes[c].slot_bytes;
  }
}

// `n` chunks whole on the device, from the front of the model: their gradients come last, so that their
// update follows backward with nothing to wait for. Nothing where that does not fit.
std::optional<Placement> with_chunks_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                                               const PlacementRequest& request, ChunkId n,
                                               const Width& width) {
  Placement p = empty_placement(layout);
  for (ChunkId chunk = 0; chunk < n; ++chunk)
    for (const Payload payload : homed(trace)) set_home(layout, p, {chunk, payload}, Tier::device);
  set_windows(layout, trace, width, p);
  if (placement_bytes(layout, trace, p)[kDevice] > request.budgets[kDevice]) return std::nullopt;
  if (trace.trains && may_place_sums(request) && !place_sums_on_device(layout, trace, request, n, width, p) &&
      request.gradients == GradientPolicy::device)
    return std::nullopt;
  if (!place_off_device(layout, trace, request, width, p)) return std::nullopt;
  keep_params_on_device(layout, trace, request, p);
  return p;
}

// Of all numbers of whole chunks on the device, the one that moves least.
std::optional<Placement> attempt(const ChunkLayout& layout, const AccessTrace& trace,
                                 const PlacementRequest& request, const Width& width) {
  const auto all = static_cast<ChunkId>(layout.n_chunks());
  const bool device_first =
      request.policy == PlacementPolicy::automatic || request.policy == PlacementPolicy::device;
  std::optional<Placement> best;
  double best_cost = 0;
  for (ChunkId n = device_first ? all : 0;; --n) {
    std::optional<Placement> p = with_chunks_on_device(layout, trace, request, n, width);
    if (p) {
      const double cost = step_cost(layout, trace, *p);
      if (!best || cost < best_cost) {
        best = std::move(p);
        best_cost = cost;
      }
      if (n == all || request.policy == PlacementPolicy::device) return best;  // all of it, or as many as fit
    }
    if (n == 0) return best;
  }
}

std::uint64_t passing_bytes(const Placement& p) {
  std::uint64_t bytes = 0;
  for (const SizeClass& slots : p.classes) bytes += std::uint64_t{slots.window[kPinned]} * slots.slot_bytes;
  return bytes;
}

}  // namespace

TierBytes placement_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& placement) {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t) bytes[t] = placement.bytes(layout, static_cast<Tier>(t));
  bytes[kDevice] += trace.device_fixed_bytes;
  bytes[kPinned] += trace.pinned_fixed_bytes;
  bytes[kNvme] += trace.nvme_fixed_bytes;
  return bytes;
}

void set_least_windows(const ChunkLayout& layout, const AccessTrace& trace, Placement& placement) {
  set_windows(layout, trace, Width{}, placement);
}

std::optional<Placement> find_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                        const PlacementRequest& request) {
  // Wide windows first: room to prefetch and to write behind is worth more than one more chunk at home. The
  // widest, in which the caller keeps ahead of the slow tier by several chunks, where it is a small part of
  // all.
  constexpr std::uint64_t kSmallPart = 8;
  if (request.budgets[kNvme] > 0)
    if (std::optional<Placement> p = attempt(layout, trace, request, {request.prefetch, 6, 12});
        p && passing_bytes(*p) <= request.budgets[kPinned] / kSmallPart)
      return p;
  const std::array<Width, 5> widths = {{{request.prefetch, 3, 6},
                                        {request.prefetch, 2, 4},
                                        {std::min(request.prefetch, 1u), 2, 2},
                                        {0, 1, 2},
                                        {0, 1, 1}}};
  for (const Width& width : widths)
    if (std::optional<Placement> p = attempt(layout, trace, request, width)) return p;
  return std::nullopt;
}

namespace {

using Judge = std::function<bool(const TierBytes&)>;

// `budgets`, which does not fit, with `tier` as large as it takes. A layout may depend on the budget, so that
// a larger one need not fit where a smaller does: what is found is a place where a page makes the difference.
std::optional<TierBytes> enlarged(TierBytes budgets, std::size_t tier, const Judge& fits) {
  constexpr std::uint64_t kPage = 4096, kMostPages = std::uint64_t{1} << 40;
  std::uint64_t low = budgets[tier] / kPage;
  if (low >= kMostPages) return std::nullopt;  // unlimited
  const auto fits_with = [&](std::uint64_t pages) {
    budgets[tier] = pages * kPage;
    return fits(budgets);
  };
  if (!fits_with(kMostPages)) return std::nullopt;
  std::uint64_t stride = 1;
  while (low + stride < kMostPages && !fits_with(low + stride)) {
    low += stride;
    stride *= 2;
  }
  std::uint64_t high = std::min(low + stride, kMostPages);
  while (low + 1 < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits_with(middle) ? high : low) = middle;
  }
  budgets[tier] = high * kPage;
  return budgets;
}

}  // namespace

TierBytes smallest_that_fits(const TierBytes& asked, bool may_grow_nvme, const Judge& fits) {
  // Enlarge one tier alone where that is enough, the one that needs least; else the device and pinned memory
  // to the least they can run with, and the rest where there is most room.
  std::optional<TierBytes> best;
  std::uint64_t best_extra = 0;
  for (const std::size_t tier : {kNvme, kPinned, kDevice}) {
    if (tier == kNvme && !may_grow_nvme) continue;
    const std::optional<TierBytes> one = enlarged(asked, tier, fits);
    if (!one || (best && (*one)[tier] - asked[tier] >= best_extra)) continue;
    best = one;
    best_extra = (*one)[tier] - asked[tier];
  }
  if (best) return *best;
  TierBytes budgets = asked;
  for (std::size_t t = 0; t < kTiers; ++t) {
    TierBytes generous{kUnlimited / 2, kUnlimited / 2, may_grow_nvme ? kUnlimited / 2 : 0};
    generous[t] = budgets[t];
    if (fits(generous)) continue;
    if (const std::optional<TierBytes> one = enlarged(generous, t, fits)) budgets[t] = (*one)[t];
  }
  for (const std::size_t tier : {kNvme, kPinned, kDevice})
    if ((tier != kNvme || may_grow_nvme) && !fits(budgets))
      if (const std::optional<TierBytes> one = enlarged(budgets, tier, fits)) budgets = *one;
  // The last tier enlarged may have made room that an earlier one no longer needs.
  for (std::size_t t = 0; t < kTiers; ++t) {
    TierBytes less = budgets;
    less[t] = asked[t];
    if (budgets[t] == asked[t]) continue;
    if (fits(less)) {
      budgets = less;
    } else if (const std::optional<TierBytes> one = enlarged(less, t, fits); one && (*one)[t] < budgets[t]) {
      budgets = *one;
    }
  }
  return fits(budgets) ? budgets : asked;
}

bool may_grow_nvme(const PlacementRequest& request) {
  return request.budgets[kNvme] > 0 || request.policy == PlacementPolicy::nvme;
}

TierBytes smallest_that_fits(const ChunkLayout& layout, const AccessTrace& trace,
                             const PlacementRequest& request) {
  return smallest_that_fits(request.budgets, may_grow_nvme(request), [&](const TierBytes& budgets) {
    PlacementRequest r = request;
    r.budgets = budgets;
    return find_placement(layout, trace, r).has_value();
  });
}

Result<Placement> plan_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                 const PlacementRequest& request) {
  if (std::optional<Placement> p = find_placement(layout, trace, request)) return *std::move(p);
  return does_not_fit(layout, trace, request, smallest_that_fits(layout, trace, request));
}

Status does_not_fit(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                    const TierBytes& suggestion) {
  Placement least = empty_placement(layout);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : homed(trace))
      set_home(layout, least, {chunk, payload}, request.budgets[kNvme] > 0 ? Tier::nvme : Tier::pinned);
  set_windows(layout, trace, Width{}, least);
  const TierBytes window = {trace.device_fixed_bytes + least.bytes(layout, Tier::device), 0, 0};
  std::string text =
      "the run does not fit its budgets\n  tier     budget        smallest that fits  shortfall\n";
  std::string keys;
  for (std::size_t t = 0; t < kTiers; ++t) {
    const bool unlimited = request.budgets[t] == kUnlimited;
    const bool raised = suggestion[t] > request.budgets[t];
    text += fmt::format("  {:<8} {:<13} {:<19} {}\n", to_string(static_cast<Tier>(t)),
                        unlimited ? "unlimited" : format_bytes(request.budgets[t]),
                        raised ? fmt::format("{} B", suggestion[t]) : std::string("as it is"),
                        raised ? format_bytes(suggestion[t] - request.budgets[t]) : std::string("-"));
    if (raised) keys += fmt::format(" memory.{}={}", to_string(static_cast<Tier>(t)), suggestion[t]);
  }
  text += fmt::format(
      "  the device needs at least {} for activations and the working window; model states and gradients "
      "take {}\n",
      format_bytes(window[kDevice]),
      format_bytes(least.bytes(layout, request.budgets[kNvme] > 0 ? Tier::nvme : Tier::pinned)));
  text += keys.empty() ? std::string("  no budgets of these tiers fit") : "  it fits with:" + keys;
  return Status::error(Code::does_not_fit, text);
}

}  // namespace strata

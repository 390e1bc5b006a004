#include <strata/offload/placement_planner.h>

#include <algorithm>
#include <bit>
#include <map>
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

// All chunks, any first so many of which lie evenly among all: by their numbers with the bits reversed.
std::vector<ChunkId> spread_out(std::size_t n_chunks) {
  const int bits = static_cast<int>(std::bit_width(n_chunks));
  std::vector<ChunkId> order;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << bits; ++i) {
    std::uint64_t reversed = 0;
    for (int b = 0; b < bits; ++b) reversed |= (i >> b & 1) << (bits - 1 - b);
    if (reversed < n_chunks) order.push_back(static_cast<ChunkId>(reversed));
  }
  return order;
}

// Off the device: parameters, then sums, then what only the commit reads chunk by chunk take pinned memory
// while there is room (window included, so it is set anew for each try), the rest nvme: of chunks from all
// over the model, so that the slow tier works throughout a pass. Homes already given stay.
bool place_off_device(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                      const Width& width, Placement& p) {
  std::vector<CopyKey> order;
  const auto add = [&](CopyKey key) {
    if (p.home(key) != Tier::device && layout.has(key.chunk, key.payload)) order.push_back(key);
  };
  const std::vector<ChunkId> chunks = spread_out(layout.n_chunks());
  for (const Payload payload : homed(trace).first(trace.trains ? 2 : 1))
    for (const ChunkId chunk : chunks) add({chunk, payload});
  for (const ChunkId chunk : chunks)
    if (trace.trains && layout.group_of(chunk).trainable)
      for (const Payload payload : homed(trace).subspan(2)) add({chunk, payload});
  for (const ChunkId chunk : chunks)  // what no step touches
    if (trace.trains && !layout.group_of(chunk).trainable) add({chunk, Payload::master});
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
  std::vector<ChunkId> trained;
  for (ChunkId chunk = first; chunk < layout.n_chunks(); ++chunk)
    if (layout.group_of(chunk).trainable) trained.push_back(chunk);
  const auto try_first = [&](std::size_t n) {
    for (std::size_t i = 0; i < trained.size(); ++i) {
      auto& home = p.homes[trained[i]][static_cast<std::size_t>(Payload::accum)];
      home = i < n ? std::optional(Tier::device) : std::nullopt;
    }
    set_windows(layout, trace, width, p);
    return placement_bytes(layout, trace, p)[kDevice] <= request.budgets[kDevice];
  };
  if (try_first(trained.size())) return true;
  std::size_t low = 0, high = trained.size();  // fewer never need more
  while (low + 1 < high) {
    const std::size_t middle = (low + high) / 2;
    (try_first(middle) ? low : high) = middle;
  }
  (void)try_first(low);
  return false;
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
std::optional<Placement> on_device(const ChunkLayout& layout, const AccessTrace& trace,
                                   const PlacementRequest& request, ChunkId n, const Width& width) {
  Placement p = empty_placement(layout);
  for (ChunkId chunk = 0; chunk < n; ++chunk)
    for (const Payload payload : homed(trace)) set_home(layout, p, {chunk, payload}, Tier::device);
  set_windows(layout, trace, width, p);
  if (placement_bytes(layout, trace, p)[kDevice] > request.budgets[kDevice]) return std::nullopt;
  return p;
}

// The same with homes for the rest.
std::optional<Placement> with_chunks_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                                               const PlacementRequest& request, ChunkId n,
                                               const Width& width) {
  std::optional<Placement> first = on_device(layout, trace, request, n, width);
  if (!first) return std::nullopt;
  Placement p = *std::move(first);
  if (trace.trains && may_place_sums(request) && !place_sums_on_device(layout, trace, request, n, width, p) &&
      request.gradients == GradientPolicy::device)
    return std::nullopt;
  if (!place_off_device(layout, trace, request, width, p)) return std::nullopt;
  keep_params_on_device(layout, trace, request, p);
  return p;
}

/// Of all numbers of whole chunks on the device, the one that moves least.
class Attempt {
 public:
  Attempt(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
          const Width& width)
      : layout_(layout), trace_(trace), request_(request), width_(width) {}

  std::optional<Placement> run() {
    const auto all = static_cast<std::int64_t>(layout_.n_chunks());
    if (request_.policy != PlacementPolicy::automatic && request_.policy != PlacementPolicy::device) {
      consider(0);
      return std::move(best_);
    }
    // Towards the end windows shrink with every chunk, so that more may fit where less does not.
    constexpr std::int64_t kEach = 24;
    std::int64_t n = all;
    for (; n >= 0 && n > all - kEach; --n) {
      consider(n);
      if (best_ && (n == all || request_.policy == PlacementPolicy::device)) return std::move(best_);
    }
    if (n < 0) return std::move(best_);
    const std::int64_t most = most_that_fit(n);
    if (most < 0) return std::move(best_);
    search(most);
    return std::move(best_);
  }

 private:
  // Below that each chunk on the device needs more of it.
  std::int64_t most_that_fit(std::int64_t n) const {
    const auto fits = [&](std::int64_t chunks) {
      return on_device(layout_, trace_, request_, static_cast<ChunkId>(chunks), width_).has_value();
    };
    if (fits(n)) return n;
    if (!fits(0)) return -1;
    std::int64_t low = 0;
    while (low + 1 < n) {
      const std::int64_t middle = (low + n) / 2;
      (fits(middle) ? low : n) = middle;
    }
    return low;
  }

  // From as many as fit down by growing strides, then around the best of these by shrinking ones.
  void search(std::int64_t most) {
    std::int64_t stride = 1;
    for (std::int64_t n = most;; n = std::max<std::int64_t>(0, n - stride), stride *= 2) {
      consider(n);
      if (best_ && request_.policy == PlacementPolicy::device) return;
      if (n == 0) break;
    }
    if (!best_) return;
    for (; stride > 0; stride /= 2)
      for (const std::int64_t n : {best_n_ + stride, best_n_ - stride})
        if (n >= 0 && n <= most) consider(n);
  }

  void consider(std::int64_t n) {
    std::optional<Placement> p =
        with_chunks_on_device(layout_, trace_, request_, static_cast<ChunkId>(n), width_);
    if (!p) return;
    const double cost = step_cost(layout_, trace_, *p);
    if (best_ && cost >= best_cost_) return;
    best_ = std::move(p);
    best_cost_ = cost;
    best_n_ = n;
  }

  const ChunkLayout& layout_;
  const AccessTrace& trace_;
  const PlacementRequest& request_;
  const Width& width_;
  std::optional<Placement> best_;
  double best_cost_ = 0;
  std::int64_t best_n_ = 0;
};

std::optional<Placement> attempt(const ChunkLayout& layout, const AccessTrace& trace,
                                 const PlacementRequest& request, const Width& width) {
  return Attempt(layout, trace, request, width).run();
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

namespace detail {

AccessTrace widest_steps(const AccessTrace& trace) {
  std::vector<std::vector<std::uint64_t>> sets;
  for (const AccessTrace::Step& step : trace.steps) {
    std::vector<std::uint64_t> keys;
    for (const CopyKey key : step.on_device)
      keys.push_back(std::uint64_t{key.chunk} * kPayloads + static_cast<std::uint64_t>(key.payload));
    std::sort(keys.begin(), keys.end());
    if (!keys.empty()) sets.push_back(std::move(keys));
  }
  std::sort(sets.begin(), sets.end(),
            [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
  std::map<std::uint64_t, std::vector<std::size_t>> kept_with;  // by key: the sets that are kept and have it
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::vector<std::size_t>& near = kept_with[sets[i].front()];
    if (std::any_of(near.begin(), near.end(), [&](std::size_t k) {
          return std::includes(sets[k].begin(), sets[k].end(), sets[i].begin(), sets[i].end());
        }))
      continue;
    kept.push_back(i);
    for (const std::uint64_t key : sets[i]) kept_with[key].push_back(i);
  }
  AccessTrace out = trace;
  out.steps.clear();
  for (const std::size_t i : kept) {
    AccessTrace::Step step;
    for (const std::uint64_t key : sets[i])
      step.on_device.push_back(
          {static_cast<ChunkId>(key / kPayloads), static_cast<Payload>(key % kPayloads)});
    out.steps.push_back(std::move(step));
  }
  return out;
}

}  // namespace detail

void set_least_windows(const ChunkLayout& layout, const AccessTrace& trace, Placement& placement) {
  set_windows(layout, trace, Width{}, placement);
}

// Whether all tiers together have room for what has to be somewhere: for those who ask many times.
static bool may_hold(const ChunkLayout& layout, const AccessTrace& trace, const TierBytes& budgets) {
  double room = 0, need = static_cast<double>(trace.device_fixed_bytes) +
                          static_cast<double>(trace.pinned_fixed_bytes) +
                          static_cast<double>(trace.nvme_fixed_bytes);
  for (const std::uint64_t bytes : budgets) room += static_cast<double>(bytes);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : homed(trace))
      need += static_cast<double>(layout.payload_bytes(chunk, payload));
  constexpr double kRounding = 1 + 1e-12;
  return need <= room * kRounding;
}

std::optional<Placement> find_placement(const ChunkLayout& layout, const AccessTrace& whole_trace,
                                        const PlacementRequest& request) {
  if (!may_hold(layout, whole_trace, request.budgets)) return std::nullopt;
  const AccessTrace trace = detail::widest_steps(whole_trace);
  // What does not fit with the narrowest windows fits with none.
  std::optional<Placement> least = attempt(layout, trace, request, {0, 1, 1});
  if (!least) return std::nullopt;
  // Wide windows first: room to prefetch and to write behind is worth more than one more chunk at home. The
  // widest, in which the caller keeps ahead of the slow tier by several chunks, where it is a small part of
  // all.
  constexpr std::uint64_t kSmallPart = 8;
  if (request.budgets[kNvme] > 0)
    if (std::optional<Placement> p = attempt(layout, trace, request, {request.prefetch, 6, 12});
        p && passing_bytes(*p) <= request.budgets[kPinned] / kSmallPart)
      return p;
  const std::array<Width, 4> widths = {{{request.prefetch, 3, 6},
                                        {request.prefetch, 2, 4},
                                        {std::min(request.prefetch, 1u), 2, 2},
                                        {0, 1, 2}}};
  for (const Width& width : widths)
    if (std::optional<Placement> p = attempt(layout, trace, request, width)) return p;
  return least;
}

namespace {

using Judge = std::function<bool(const TierBytes&)>;

// `budgets`, which does not fit, with `tier` as large as it takes, to a page, or to a four-thousandth of what
// it is raised by. A layout may depend on the budget, so that a larger one need not fit where a smaller does:
// what is found is a place where so much makes the difference.
std::optional<TierBytes> enlarged(TierBytes budgets, std::size_t tier, const Judge& fits) {
  constexpr std::uint64_t kPage = 4096, kMostPages = std::uint64_t{1} << 40;
  constexpr std::uint64_t kFine = 4096;
  const std::uint64_t budgets_pages = budgets[tier] / kPage;
  std::uint64_t low = budgets_pages;
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
  const std::uint64_t close = std::max<std::uint64_t>(1, (high - budgets_pages) / kFine);
  while (low + close < high) {
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

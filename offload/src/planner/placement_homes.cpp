#include "planner/placement_homes.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "planner/placement_cost.h"
#include "planner/placement_windows.h"

namespace strata::detail {
namespace {

// Returns the largest n in [low, high) for which `holds`; it is true for `low` and false for `high`.
template <class N, class Holds>
N bisect_last(N low, N high, const Holds& holds) {
  while (low + 1 < high) {
    const N middle = low + (high - low) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

bool within(const TierBytes& need, const TierBytes& budgets) {
  for (std::size_t t = 0; t < kTiers; ++t)
    if (need[t] > budgets[t]) return false;
  return true;
}

// All chunks in the order of their bit-reversed indices: the first n of them are spread evenly over the
// model, for any n.
std::vector<ChunkId> bit_reversed_order(std::size_t n_chunks) {
  const int bits = static_cast<int>(std::bit_width(n_chunks));
  std::vector<ChunkId> order;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << bits; ++i) {
    std::uint64_t reversed = 0;
    for (int b = 0; b < bits; ++b) reversed |= (i >> b & 1) << (bits - 1 - b);
    if (reversed < n_chunks) order.push_back(static_cast<ChunkId>(reversed));
  }
  return order;
}

// Places the payloads that are not on the device. Parameters, then accumulated gradients, then the states
// that only the commit reads, chunk by chunk, go to pinned memory while it has room, and the rest to nvme.
// The host's windows count too, so they are recomputed for each attempt. The chunks chosen are spread over
// the model, so that the NVMe tier is busy throughout a pass. Homes that are already set stay.
bool place_off_device(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                      const WindowWidth& width, Placement& p) {
  std::vector<PayloadKey> order;
  const auto add = [&](PayloadKey key) {
    if (p.home(key) != Tier::device && layout.has(key.chunk, key.payload)) order.push_back(key);
  };
  const std::vector<ChunkId> chunks = bit_reversed_order(layout.n_chunks());
  const HomedPayloads homed = homed_payloads(trace);
  for (const Payload payload : homed.by_pass)
    for (const ChunkId chunk : chunks) add({chunk, payload});
  for (const ChunkId chunk : chunks)
    if (trace.training && layout.group_of(chunk).trainable)
      for (const Payload payload : homed.by_update) add({chunk, payload});
  for (const ChunkId chunk : chunks)  // masters of frozen parameters: no step touches them
    if (trace.training && !layout.group_of(chunk).trainable) add({chunk, Payload::master});
  const bool has_nvme = request.budgets[kNvme] > 0;
  set_device_windows(layout, trace, width, p);
  const auto pin_first = [&](std::size_t n) {
    for (std::size_t i = 0; i < order.size(); ++i)
      p.homes[order[i].chunk][static_cast<std::size_t>(order[i].payload)] = i < n ? Tier::pinned : Tier::nvme;
    set_host_windows(layout, trace, width, p);
    return tier_bytes(layout, trace, p, Tier::pinned);
  };
  std::size_t n_pinned = request.policy == PlacementPolicy::nvme ? 0 : order.size();
  const std::uint64_t budget = request.budgets[kPinned];
  if (n_pinned > 0 && pin_first(n_pinned) > budget) {
    // Without homes the window is at its widest: often it need not be known exactly.
    const std::uint64_t widest = has_nvme ? pin_first(0) : 0;
    if (!has_nvme || widest > budget) return false;
    std::vector<std::uint64_t> homes = {0};
    for (const PayloadKey key : order)
      homes.push_back(homes.back() + layout.payload_bytes(key.chunk, key.payload));
    // Bisection over the number of pinned homes: fewer homes never need more pinned memory.
    n_pinned = bisect_last(std::size_t{0}, n_pinned, [&](std::size_t n) {
      if (homes[n] + trace.pinned_fixed_bytes > budget) return false;
      return homes[n] + widest <= budget || pin_first(n) <= budget;
    });
  }
  return pin_first(n_pinned) <= budget && within(placement_bytes(layout, trace, p), request.budgets);
}

// Fills the remaining device memory with accumulated gradients: every micro-batch updates them, but they are
// copied off the device only once, for the optimizer step. Returns whether all of them fit.
bool place_gradients_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                               const PlacementRequest& request, ChunkId first, const WindowWidth& width,
                               Placement& p) {
  std::vector<ChunkId> trained;
  for (ChunkId chunk = first; chunk < layout.n_chunks(); ++chunk)
    if (layout.has(chunk, Payload::accum)) trained.push_back(chunk);
  const auto try_first = [&](std::size_t n) {
    for (std::size_t i = 0; i < trained.size(); ++i) {
      auto& home = p.homes[trained[i]][static_cast<std::size_t>(Payload::accum)];
      home = i < n ? std::optional(Tier::device) : std::nullopt;
    }
    set_device_windows(layout, trace, width, p);
    return tier_bytes(layout, trace, p, Tier::device) <= request.budgets[kDevice];
  };
  if (try_first(trained.size())) return true;
  (void)try_first(bisect_last(std::size_t{0}, trained.size(), try_first));  // fewer never need more
  return false;
}

bool may_place_gradients_on_device(const PlacementRequest& request) {
  return request.gradients == GradientPolicy::device ||
         (request.gradients == GradientPolicy::automatic && request.policy == PlacementPolicy::automatic);
}

// Uses the device memory that still remains to cache streamed parameters, so that a step uploads them once.
void cache_params_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                            const PlacementRequest& request, Placement& p) {
  const std::uint64_t used = tier_bytes(layout, trace, p, Tier::device);
  std::uint64_t left = request.budgets[kDevice] - std::min(used, request.budgets[kDevice]);
  const Counts streamed = streamed_params(layout, trace, p), cached = cached_params(layout, trace, p);
  for (std::size_t c = 0; c < p.classes.size(); ++c) {
    const std::uint64_t more =
        std::min<std::uint64_t>(streamed[c] - cached[c], left / p.classes[c].slot_bytes);
    p.classes[c].window[kDevice] += static_cast<std::uint32_t>(more);
    left -= more * p.classes[c].slot_bytes;
  }
}

// Places the first `n` chunks of the model entirely on the device: their gradients are the last that backward
// computes, so their update follows without waiting for a transfer. Returns nullopt if that does not fit.
std::optional<Placement> on_device(const ChunkLayout& layout, const AccessTrace& trace,
                                   const PlacementRequest& request, ChunkId n, const WindowWidth& width) {
  Placement p = empty_placement(layout);
  for (ChunkId chunk = 0; chunk < n; ++chunk)
    for (const Payload payload : homed_payloads(trace).all)
      set_home(layout, p, {chunk, payload}, Tier::device);
  set_device_windows(layout, trace, width, p);
  if (tier_bytes(layout, trace, p, Tier::device) > request.budgets[kDevice]) return std::nullopt;
  return p;
}

// on_device() with homes for all other payloads.
std::optional<Placement> with_chunks_on_device(const ChunkLayout& layout, const AccessTrace& trace,
                                               const PlacementRequest& request, ChunkId n,
                                               const WindowWidth& width) {
  std::optional<Placement> first = on_device(layout, trace, request, n, width);
  if (!first) return std::nullopt;
  Placement p = *std::move(first);
  if (trace.training && may_place_gradients_on_device(request) &&
      !place_gradients_on_device(layout, trace, request, n, width, p) &&
      request.gradients == GradientPolicy::device)
    return std::nullopt;
  if (!place_off_device(layout, trace, request, width, p)) return std::nullopt;
  cache_params_on_device(layout, trace, request, p);
  return p;
}

/// What homes take at least where the first n chunks are entirely on the device: a test of sums that spares
/// numbers that cannot fit the search for their windows.
class LeastBytes {
 public:
  LeastBytes(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request)
      : device_(room(request.budgets[kDevice], trace.device_fixed_bytes)),
        host_(room(request.budgets[kPinned], trace.pinned_fixed_bytes) +
              room(request.budgets[kNvme], trace.nvme_fixed_bytes)),
        chunks_(layout.n_chunks() + 1) {
    const bool sums_leave = trace.training && may_place_gradients_on_device(request);
    for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
      Sums& sums = chunks_[chunk + 1] = chunks_[chunk];
      for (const Payload payload : homed_payloads(trace).all) {
        const auto bytes = static_cast<double>(layout.payload_bytes(chunk, payload));
        sums.all += bytes;
        sums.off_device += sums_leave && payload == Payload::accum ? 0 : bytes;
      }
    }
  }
  bool may_fit(std::int64_t n) const { return device_may_hold(n) && host_may_hold_rest(n); }
  bool device_may_hold(std::int64_t n) const {
    return chunks_[static_cast<std::size_t>(n)].all * kRounding <= device_;
  }
  /// The smallest number up to `n` of which the host may hold the rest; n + 1 if there is none.
  std::int64_t fewest_on_device(std::int64_t n) const {
    if (!host_may_hold_rest(n)) return n + 1;
    if (host_may_hold_rest(0)) return 0;
    return 1 + bisect_last(std::int64_t{0}, n, [&](std::int64_t k) { return !host_may_hold_rest(k); });
  }

 private:
  static constexpr double kRounding = 1 - 1e-12;
  struct Sums {
    double all = 0, off_device = 0;
  };
  bool host_may_hold_rest(std::int64_t n) const {
    const double first = chunks_[static_cast<std::size_t>(n)].off_device;
    return (chunks_.back().off_device - first) * kRounding <= host_;
  }
  static double room(std::uint64_t budget, std::size_t fixed) {
    return std::max(0.0, static_cast<double>(budget) - static_cast<double>(fixed));
  }

  const double device_, host_;
  std::vector<Sums> chunks_;  // entry n: the first n chunks
};

/// Searches for the number of chunks entirely on the device that moves the fewest bytes in a step.
class HomesSearch {
 public:
  /// `takes_any`: the first number that fits is enough.
  HomesSearch(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
              const WindowWidth& width, bool takes_any)
      : layout_(layout),
        trace_(trace),
        request_(request),
        width_(width),
        takes_any_(takes_any),
        least_(layout, trace, request) {}

  std::optional<Placement> run() {
    const auto all = static_cast<std::int64_t>(layout_.n_chunks());
    if (request_.policy != PlacementPolicy::automatic && request_.policy != PlacementPolicy::device) {
      consider(0);
      return std::move(best_);
    }
    // Where few chunks are left to stream, the windows shrink with every chunk on the device, so a larger
    // number may fit where a smaller one does not. These numbers are tried one by one.
    constexpr std::int64_t kEach = 24;
    std::int64_t n = all;
    for (; n >= 0 && n > all - kEach; --n) {
      consider(n);
      if (best_ && (n == all || takes_first())) return std::move(best_);
    }
    if (n < 0) return std::move(best_);
    const std::int64_t max_chunks = max_that_fit(n);
    if (max_chunks < 0) return std::move(best_);
    search(max_chunks);
    return std::move(best_);
  }

 private:
  bool takes_first() const { return takes_any_ || request_.policy == PlacementPolicy::device; }

  // Below `n` every further chunk on the device needs more device memory, so bisection is valid; where
  // classes share windows, the first home of a class ends its sharing, and fewer chunks may be found than
  // would fit.
  std::int64_t max_that_fit(std::int64_t n) const {
    const auto fits = [&](std::int64_t chunks) {
      return least_.device_may_hold(chunks) &&
             on_device(layout_, trace_, request_, static_cast<ChunkId>(chunks), width_).has_value();
    };
    const std::int64_t fewest = least_.fewest_on_device(n);
    if (fewest > n) return -1;
    if (fits(n)) return n;
    const std::int64_t low = width_.shares_device ? 0 : fewest;
    if (!fits(low)) return -1;
    return bisect_last(low, n, fits);
  }

  // Tries numbers from the largest that fits downwards in growing strides, then around the best one in
  // shrinking strides.
  void search(std::int64_t max_chunks) {
    std::int64_t stride = 1;
    for (std::int64_t n = max_chunks;; n = std::max<std::int64_t>(0, n - stride), stride *= 2) {
      consider(n);
      if (best_ && takes_first()) return;
      if (n == 0) break;
    }
    if (!best_) return;
    for (; stride > 0; stride /= 2)
      for (const std::int64_t n : {best_n_ + stride, best_n_ - stride})
        if (n >= 0 && n <= max_chunks) consider(n);
  }

  void consider(std::int64_t n) {
    if (!least_.may_fit(n)) return;
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
  const WindowWidth& width_;
  const bool takes_any_;
  const LeastBytes least_;
  std::optional<Placement> best_;
  double best_cost_ = 0;
  std::int64_t best_n_ = 0;
};

}  // namespace

Placement empty_placement(const ChunkLayout& layout) {
  Placement p;
  p.classes = slot_classes(layout);
  p.homes.resize(layout.n_chunks());
  return p;
}

void set_home(const ChunkLayout& layout, Placement& p, PayloadKey key, Tier tier) {
  if (layout.has(key.chunk, key.payload)) p.homes[key.chunk][static_cast<std::size_t>(key.payload)] = tier;
}

std::optional<Placement> find_homes(const ChunkLayout& layout, const AccessTrace& trace,
                                    const PlacementRequest& request, const WindowWidth& width) {
  return HomesSearch(layout, trace, request, width, false).run();
}

bool any_homes_fit(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                   const WindowWidth& width) {
  return HomesSearch(layout, trace, request, width, true).run().has_value();
}

}  // namespace strata::detail

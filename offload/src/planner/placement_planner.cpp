#include <strata/offload/placement_planner.h>

#include <algorithm>
#include <array>

#include "planner/placement_homes.h"
#include "planner/placement_windows.h"
#include "planner/reuse_window.h"

namespace strata {

using detail::find_homes;
using detail::homed_payloads;
using detail::kNvme;
using detail::kPinned;
using detail::set_windows;
using detail::WindowWidth;

namespace {

// Whether all tiers together can hold all payloads: a cheap check for callers that try many requests.
bool may_hold(const ChunkLayout& layout, const AccessTrace& trace, const TierBytes& budgets) {
  double room = 0, need = static_cast<double>(trace.device_fixed_bytes) +
                          static_cast<double>(trace.pinned_fixed_bytes) +
                          static_cast<double>(trace.nvme_fixed_bytes);
  for (const std::uint64_t bytes : budgets) room += static_cast<double>(bytes);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : homed_payloads(trace).all)
      need += static_cast<double>(layout.payload_bytes(chunk, payload));
  constexpr double kRounding = 1 + 1e-12;
  return need <= room * kRounding;
}

std::uint64_t pinned_window_bytes(const Placement& p) {
  std::uint64_t bytes = 0;
  for (const SizeClass& slots : p.classes) bytes += std::uint64_t{slots.window[kPinned]} * slots.slot_bytes;
  return bytes;
}

// Sharing comes last, since what passes in slots of another size takes more of them than it needs.
std::optional<Placement> with_shared_windows(const ChunkLayout& layout, const AccessTrace& trace,
                                             const PlacementRequest& request) {
  std::optional<Placement> narrowest = find_homes(layout, trace, request, {0, 1, 1, true});
  if (!narrowest) return std::nullopt;
  const std::array<WindowWidth, 3> widths = {
      {{request.prefetch, 2, 4, true}, {std::min(request.prefetch, 1u), 2, 2, true}, {0, 1, 2, true}}};
  for (const WindowWidth& width : widths)
    if (std::optional<Placement> p = find_homes(layout, trace, request, width)) return p;
  return narrowest;
}

}  // namespace

void set_minimum_windows(const ChunkLayout& layout, const AccessTrace& trace, Placement& placement) {
  set_windows(layout, trace, WindowWidth{}, placement);
}

std::optional<Placement> find_placement(const ChunkLayout& layout, const AccessTrace& whole_trace,
                                        const PlacementRequest& request) {
  if (!may_hold(layout, whole_trace, request.budgets)) return std::nullopt;
  const AccessTrace trace = detail::prune_dominated_accesses(whole_trace);
  // A run that does not fit with the narrowest windows does not fit with any, unless classes share them.
  std::optional<Placement> narrowest = find_homes(layout, trace, request, {0, 1, 1});
  if (!narrowest) return with_shared_windows(layout, trace, request);
  // What all micro-batches use before the next layer is worth more than homes, which are used as often.
  if (const std::uint32_t reused = detail::reuse_window(whole_trace); reused > request.prefetch)
    for (const WindowWidth& width : {WindowWidth{reused + request.prefetch, 3, 6}, WindowWidth{reused, 2, 4}})
      if (std::optional<Placement> p = find_homes(layout, trace, request, width)) return p;
  // Wide windows first: room to prefetch and to write behind is worth more than one more chunk on the device
  // or in RAM. The widest, which keep the caller several chunks ahead of the NVMe tier, are used only if they
  // take a small part of pinned memory.
  constexpr std::uint64_t kSmallPart = 8;
  if (request.budgets[kNvme] > 0)
    if (std::optional<Placement> p = find_homes(layout, trace, request, {request.prefetch, 6, 12});
        p && pinned_window_bytes(*p) <= request.budgets[kPinned] / kSmallPart)
      return p;
  const std::array<WindowWidth, 4> widths = {{{request.prefetch, 3, 6},
                                              {request.prefetch, 2, 4},
                                              {std::min(request.prefetch, 1u), 2, 2},
                                              {0, 1, 2}}};
  for (const WindowWidth& width : widths)
    if (std::optional<Placement> p = find_homes(layout, trace, request, width)) return p;
  return narrowest;
}

PlacementTest::PlacementTest(const ChunkLayout& layout, const AccessTrace& trace)
    : layout_(layout), trace_(detail::prune_dominated_accesses(trace)) {}

bool PlacementTest::fits(const PlacementRequest& request) const {
  return may_hold(layout_, trace_, request.budgets) &&
         (detail::any_homes_fit(layout_, trace_, request, {0, 1, 1}) ||
          detail::any_homes_fit(layout_, trace_, request, {0, 1, 1, true}));
}

Result<Placement> plan_placement(const ChunkLayout& layout, const AccessTrace& trace,
                                 const PlacementRequest& request) {
  if (std::optional<Placement> p = find_placement(layout, trace, request)) return *std::move(p);
  return placement_error(layout, trace, request, minimum_budgets(layout, trace, request));
}

}  // namespace strata

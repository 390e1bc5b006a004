#include <string>

#include <fmt/format.h>

#include <strata/offload/placement_planner.h>
#include <strata/runtime/units.h>

#include "planner/placement_homes.h"
#include "planner/placement_windows.h"

namespace strata {

using detail::empty_placement;
using detail::homed_payloads;
using detail::kDevice;
using detail::kNvme;
using detail::set_home;
using detail::set_windows;
using detail::WindowWidth;

Status placement_error(const ChunkLayout& layout, const AccessTrace& trace, const PlacementRequest& request,
                       const TierBytes& suggestion) {
  Placement minimal = empty_placement(layout);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : homed_payloads(trace).all)
      set_home(layout, minimal, {chunk, payload}, request.budgets[kNvme] > 0 ? Tier::nvme : Tier::pinned);
  set_windows(layout, trace, WindowWidth{}, minimal);
  const TierBytes window = {trace.device_fixed_bytes + minimal.bytes(layout, Tier::device), 0, 0};
  std::string text =
      "the run does not fit its budgets\n  tier     budget        smallest that fits  shortfall\n";
  std::string keys, beyond;
  for (std::size_t t = 0; t < kTiers; ++t) {
    const bool unlimited = request.budgets[t] == kUnlimited;
    const bool raised = suggestion[t] > request.budgets[t];
    text += fmt::format("  {:<8} {:<13} {:<19} {}\n", to_string(static_cast<Tier>(t)),
                        unlimited ? "unlimited" : format_bytes(request.budgets[t]),
                        raised ? fmt::format("{} B", suggestion[t]) : std::string("unchanged"),
                        raised ? format_bytes(suggestion[t] - request.budgets[t]) : std::string("-"));
    if (raised && suggestion[t] > request.capacity[t])
      beyond += fmt::format("{}{} of {}", beyond.empty() ? "" : " and ", format_bytes(request.capacity[t]),
                            to_string(static_cast<Tier>(t)));
    if (raised) keys += fmt::format(" memory.{}={}", to_string(static_cast<Tier>(t)), suggestion[t]);
  }
  text += fmt::format(
      "  the device needs at least {} for activations and the working window; model states and gradients "
      "take {}\n",
      format_bytes(window[kDevice]),
      format_bytes(minimal.bytes(layout, request.budgets[kNvme] > 0 ? Tier::nvme : Tier::pinned)));
  if (keys.empty())
    text += "  no budgets of these tiers fit";
  else if (beyond.empty())
    text += "  it fits with:" + keys;
  else
    text += fmt::format(
        "  no budgets within the memory of this machine fit: it has {}; a machine with{} would be enough",
        beyond, keys);
  return Status::error(Code::does_not_fit, text);
}

}  // namespace strata

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>

namespace strata::detail {

inline constexpr std::size_t kDevice = static_cast<std::size_t>(Tier::device);
inline constexpr std::size_t kPinned = static_cast<std::size_t>(Tier::pinned);
inline constexpr std::size_t kNvme = static_cast<std::size_t>(Tier::nvme);

using Counts = std::vector<std::uint32_t>;  ///< by class

/// One attempt: how wide the windows are and how many spares there are.
struct WindowWidth {
  std::uint32_t device_extra = 0;
  std::uint32_t pinned_factor = 1;
  std::uint32_t spares = 1;
};

/// The same trace for a search: without the steps whose payloads another step has all of, since no placement
/// needs more room for them.
AccessTrace prune_dominated_accesses(const AccessTrace& trace);
/// What a run keeps between uses; one that only infers has parameters alone. A chunk may lack some of them.
std::span<const Payload> homed_payloads(const AccessTrace& trace);
/// The windows that a run with these homes needs, and what `width` adds.
void set_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width, Placement& p);
/// Parameters without a home on the device.
Counts streamed_params(const ChunkLayout& layout, const Placement& p);
/// Of these, what the device window keeps from the first use in a step to the last.
Counts cached_params(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p);

}  // namespace strata::detail

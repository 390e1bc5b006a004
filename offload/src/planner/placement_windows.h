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

using Counts = std::vector<std::uint32_t>;  ///< indexed by size class

/// Width of the windows and number of spares that one attempt of the planner uses.
struct WindowWidth {
  std::uint32_t device_extra = 0;
  std::uint32_t pinned_factor = 1;
  std::uint32_t spares = 1;
  bool shares_device = false;  ///< classes of sizes share windows on the device where that saves memory
};

/// What placement_bytes() has for one tier.
std::uint64_t tier_bytes(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p, Tier tier);
/// Returns the trace without the accesses whose payloads are a subset of another access, since no placement
/// needs more memory for them.
AccessTrace prune_dominated_accesses(const AccessTrace& trace);
/// The payloads that need a home; for inference only the parameters. A chunk may lack some of them.
struct HomedPayloads {
  std::span<const Payload> by_pass;    ///< every pass uses them, the most used first
  std::span<const Payload> by_update;  ///< only the update uses them
  std::span<const Payload> all;
};
HomedPayloads homed_payloads(const AccessTrace& trace);
/// The payload from which the passes read parameters, as far as it has a home.
Payload read_payload(const ChunkLayout& layout, const AccessTrace& trace, ChunkId chunk);
/// Sets the windows to what a run with these homes needs, plus what `width` adds.
void set_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width, Placement& p);
/// The two halves of set_windows(). Those on the device follow from which payloads have their homes there,
/// wherever the other payloads have theirs.
void set_device_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width,
                        Placement& p);
void set_host_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width,
                      Placement& p);
/// Number of parameters without a home on the device.
Counts streamed_params(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p);
/// Number of streamed parameters that the device window holds from their first use in a step to their last.
Counts cached_params(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p);

}  // namespace strata::detail
